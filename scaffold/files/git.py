"""The only way to call git: no program named in a repository's configuration is ever started.

A checkout is untrusted, and dozens of keys name programs: filters, monitors, hooks, diff drivers, transports. No list
of them can be complete, so there is none. The repository itself is only queried for its location, which starts nothing.
All other queries run in a separate folder that borrows its objects and its index, with our own configuration. Missing
objects are never fetched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.reading import LARGEST, read_bytes
from scaffold.limits import child_process
from scaffold.scratch import scratch_folder

TIMEOUT_SECONDS = 30

Git = Callable[..., "bytes | None"]

_CALM = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_UNCONFIGURED = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
_LARGEST_INDEX = 500_000_000
# Settings that decide whether a file differs from its blob; each value is a word.
_COMPARING = ("autocrlf", "checkstat", "eol", "filemode", "ignorecase", "symlinks", "trustctime")
_IGNORING = "excludesfile"


@dataclass(frozen=True)
class Repository:
    """Where a folder's repository lies.

    Attributes:
        git_dir: its folder for this work tree; nothing that a branch tracks can stand there.
        common_dir: the one that all its work trees share.
        top: the root of the work tree.
        prefix: the folder that was asked about, from the root, with ``/`` at its end or empty.
        sha256: whether its objects are named by SHA-256.
    """

    git_dir: Path
    common_dir: Path
    top: Path
    prefix: str
    sha256: bool


def call(
    *arguments: str, cwd: Path, variables: Mapping[str, str] | None = None, stdin: bytes = b""
) -> child_process.Ended[bytes]:
    """Run git.

    Args:
        arguments: a command and its arguments.
        cwd: where it runs.
        variables: in addition to those that disable prompts; without them the configuration of user and repository is
            read.
        stdin: what it reads.

    Raises:
        OSError: there is no git.
        TookTooLong: it was ended.
    """
    # Inside a git hook, these variables name the hook's repository.
    inherited = {
        name: value
        for name, value in child_process.environment().items()
        if not name.startswith("GIT_") or name == "GIT_EXEC_PATH" or (variables is None and "_CONFIG" in name)
    }
    return child_process.run(
        ["git", *arguments],
        cwd=cwd,
        seconds=TIMEOUT_SECONDS,
        variables={**inherited, **_CALM, **({**_UNCONFIGURED, **variables} if variables is not None else {})},
        stdin=stdin,
    )


def _output(*arguments: str, cwd: Path, variables: Mapping[str, str] | None = None, stdin: bytes = b"") -> bytes | None:
    """Return a command's stdout; None if it fails, or there is no git.

    Raises:
        ScaffoldError: it timed out, as git does on a pipe in place of a file; reporting no repository, or no change,
            would be a guess.
    """
    try:
        done = call(*arguments, cwd=cwd, variables=variables, stdin=stdin)
    except child_process.TookTooLong:
        hint = "is a file that git reads there, such as .gitignore, a pipe?"
        raise ScaffoldError(f"git gives no answer about {cwd} within {TIMEOUT_SECONDS} s", hint=hint) from None
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def installed() -> str | None:
    """The version of git, None where there is none."""
    printed = _output("version", cwd=Path("/"), variables={})
    return None if printed is None else printed.decode(errors="replace").strip().removeprefix("git version ")


def repository(root: Path) -> Repository | None:
    """Return where the repository of a folder lies; None where there is none, or git does not trust it."""
    root = root.resolve()
    if not any(os.path.lexists(folder / ".git") for folder in (root, *root.parents)):
        return None
    asked = ["--show-toplevel", "--absolute-git-dir", "--git-common-dir", "--show-prefix", "--show-object-format"]
    printed = _output("-c", "safe.bareRepository=explicit", "rev-parse", *asked, cwd=root)
    lines = os.fsdecode(printed or b"").split("\n")
    if len(lines) != len(asked) + 1:
        return None
    top, git_dir, common_dir = Path(lines[0]), Path(lines[1]).resolve(), (root / lines[2]).resolve()
    tracked = git_dir.is_relative_to(top) and ".git" not in git_dir.relative_to(top).parts
    if (top / lines[3]).resolve() != root or tracked or root.is_relative_to(git_dir):
        return None  # the tree claims to be another's, or to be its own repository
    return Repository(git_dir, common_dir, top, lines[3], lines[4] == "sha256")


def uncommitted(root: Path) -> list[str]:
    """Return the files of a checkout that differ from its last commit, untracked ones included; empty without git.

    Files are compared without filters. Submodules are ignored.
    """
    found = repository(root)
    if found is None:
        return []
    status = ["status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=all"]
    with _borrowed(found) as git:
        printed = git(*_settings(root), *status, "--", ".", cwd=root)
    paths = [os.fsdecode(entry[3:]) for entry in (printed or b"").split(b"\0") if len(entry) > 3]
    return sorted(path.removeprefix(found.prefix) for path in paths)


def versions(root: Path, path: str, limit: int = 50) -> list[bytes]:
    """Return the contents that ``path`` had in the history of the current branch, the newest first."""
    found = repository(root)
    if found is None or "\n" in path:
        return []
    with _borrowed(found) as git:
        commits = git("rev-list", f"--max-count={limit}", "HEAD", "--", path, cwd=root) or b""
        names = b"".join(commit + os.fsencode(f":{found.prefix}{path}\n") for commit in commits.split())
        listed = git("cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", cwd=root, stdin=names)
        known = [line.split() for line in (listed or b"").splitlines()]
        blobs = [line[0] for line in known if len(line) == 3 and line[1] == b"blob" and int(line[2]) <= LARGEST]
        contents = (git("cat-file", "blob", os.fsdecode(blob), cwd=root) for blob in dict.fromkeys(blobs))
        return [content for content in contents if content is not None]


def _settings(root: Path) -> list[str]:
    """Return options that compare files as the user's and the repository's configuration do."""
    options = []
    pattern = rf"^core\.({'|'.join((*_COMPARING, _IGNORING))})$"
    for entry in (_output("config", "-z", "--get-regexp", pattern, cwd=root) or b"").split(b"\0"):
        key, _, value = os.fsdecode(entry).removeprefix("core.").partition("\n")
        place = os.path.expanduser(value)  # noqa: PTH111  # pathlib's raises for a user that does not exist
        if (key in _COMPARING and value.isalnum()) or (key == _IGNORING and os.path.isfile(place)):  # noqa: PTH113
            options += ["-c", f"core.{key}={value}"]
    return options


@contextmanager
def _borrowed(repository: Repository) -> Iterator[Git]:
    """Yield a way to call git that sees the objects, the last commit, the index and the work tree; no configuration."""
    head = _output("rev-parse", "--quiet", "--verify", "HEAD", cwd=repository.top)
    with scratch_folder("git") as folder:
        for inner in ("refs", "info"):
            (folder / inner).mkdir()
        (folder / "HEAD").write_bytes(head or b"ref: refs/heads/unborn\n")
        format_ = "\n[extensions]\n\tobjectFormat = sha256" if repository.sha256 else ""
        (folder / "config").write_text(f"[core]\n\trepositoryFormatVersion = 1{format_}\n", encoding="utf-8")
        indexes = ["index", *(path.name for path in repository.git_dir.glob("sharedindex.*"))]
        for file in indexes:
            _copy(repository.git_dir / file, folder / file)
        for file in ("info/exclude", "shallow"):
            _copy(repository.common_dir / file, folder / file)
        yield partial(
            _output,
            variables={
                "GIT_DIR": str(folder),
                "GIT_WORK_TREE": str(repository.top),
                "GIT_OBJECT_DIRECTORY": str(repository.common_dir / "objects"),
            },
        )


def _copy(source: Path, target: Path) -> None:
    with suppress(OSError):
        target.write_bytes(read_bytes(source, _LARGEST_INDEX))
