"""Three texts become one, by git's own merge."""

from __future__ import annotations

from dataclasses import dataclass

from scaffold import git
from scaffold.child_process import TookTooLong
from scaffold.errors import ScaffoldError
from scaffold.scratch import scratch_folder

OPEN, CLOSE = b"<<<<<<< ", b">>>>>>> "
_MANY = 128


@dataclass(frozen=True)
class MergedText:
    """The merged bytes, and whether conflict markers are in them."""

    content: bytes
    conflicts: bool


def merge_text(mine: bytes, base: bytes, new: bytes, *, labels: tuple[str, str, str]) -> MergedText:
    """Merge ``new`` into ``mine``, both of which come from ``base``; an empty base gives a merge of two.

    Args:
        mine: what is on disk.
        base: what was rendered before.
        new: what is rendered now.
        labels: what conflict markers call the three.

    Raises:
        ScaffoldError: there is no git, or it refuses, as it does for binary content.
    """
    with scratch_folder("merge") as folder:
        for file, content in (("mine", mine), ("base", base), ("new", new)):
            (folder / file).write_bytes(content)
        options = [word for label in labels for word in ("-L", label)]
        # No configuration is read: the user's may ask for another style, and the folder may lie in a repository.
        variables = {"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}
        try:
            done = git.call("merge-file", "-p", *options, "mine", "base", "new", cwd=folder, variables=variables)
        except (OSError, TookTooLong) as error:
            raise ScaffoldError(f"git merge-file did not run: {error}", hint="update needs git") from None
    if done.returncode >= _MANY:
        problem = done.stderr.decode(errors="replace").strip().splitlines()
        raise ScaffoldError(f"git merge-file failed: {problem[-1] if problem else done.returncode}")
    return MergedText(done.stdout, done.returncode != 0)


def has_markers(content: bytes) -> bool:
    """Whether conflict markers of a merge stand at the beginning of lines, opening and closing."""
    lines = content.splitlines()
    return any(line.startswith(OPEN) for line in lines) and any(line.startswith(CLOSE) for line in lines)
