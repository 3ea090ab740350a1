"""Plans: into a checkout, or into a folder of its own with the edits as a patch beside the tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from scaffold.errors import ConflictError, ScaffoldError
from scaffold.files.reading import expanded, walk
from scaffold.plan.change import FileState, PlannedChange, as_there, plain
from scaffold.plan.edits import FileEdit, needs_file
from scaffold.plan.folder import Folder, contained
from scaffold.plan.plan import Plan
from scaffold.plan.rewire import rewired
from scaffold.plan.sketch import patch
from scaffold.render.rendered import RenderedFile
from scaffold.target.profile import ContractProfile, default_profile
from scaffold.team import FOLDER as TEAM

PATCH = "verl_omni.patch"
# What running and linting a tree leaves in it, and the team's presets.
IGNORED = frozenset({".git", TEAM, "__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache"})


def plan_output(
    files: Mapping[str, RenderedFile],
    edits: Iterable[FileEdit],
    root: str | Path,
    *,
    profile: ContractProfile | None = None,
    force: bool = False,
) -> Plan:
    """Plan ``--out``: the rendered tree and, of a tree for a checkout, ``verl_omni.patch`` for the profile's release.

    The folder may be missing, empty, or hold this very output; other content is a conflict with exit code 2.

    Raises:
        ScaffoldError: the folder is a file, a path leaves it, or the profile has no place for an edit.
    """
    root = expanded(root)
    wanted = {path: FileState.of(file) for path, file in files.items()}
    wired = patch(profile or default_profile(), edits)
    if wired:
        wanted[PATCH] = FileState.text(wired)
    there = states(root, wanted)
    changes = []
    for path, after in sorted(wanted.items()):
        before = there.get(path)
        differs = "differs" if before is not None and before != after else None
        changes.append(PlannedChange(path, before, after, differs))
    for path in _others(root, wanted):
        changes.append(PlannedChange(path, None, None, "not part of the output"))
    message = f"the folder {root} exists with other content"
    hint = "give --out a new folder, or --force to overwrite"
    return Plan(root, tuple(changes), force, ScaffoldError, message, hint)


def plan_checkout(
    files: Mapping[str, RenderedFile],
    edits: Iterable[FileEdit],
    root: str | Path,
    *,
    known: Mapping[str, str] | None = None,
    force: bool = False,
) -> Plan:
    """Plan ``--verl-omni``: the rendered files at their places and the edits made in place.

    Args:
        files: what was rendered.
        edits: the edits of the checkout's own files.
        root: the checkout.
        known: SHA-256 of each file's content as it was last written; a file with this digest is unedited and may be
            replaced.
        force: replace files that differ.

    Raises:
        ScaffoldError: a path leaves the checkout or passes a link, or a file to edit is missing or misshapen.
    """
    root = Path(root)
    wanted = {path: FileState.of(file) for path, file in files.items()}
    edited: dict[str, list[FileEdit]] = {}
    for edit in edits:
        edited.setdefault(edit.path, []).append(edit)
    twice = sorted(wanted.keys() & edited.keys())
    if twice:
        raise ScaffoldError(f"{twice[0]} is both rendered and edited")
    there = states(root, [*wanted, *edited])
    changes = []
    for path, after in wanted.items():
        before = there.get(path)
        conflict = _conflict(plain(before), after, (known or {}).get(path))
        changes.append(PlannedChange(path, before, as_there(after, before), conflict))
    changes += [
        rewired(path, there.get(path), wanted=mine)
        for path, mine in edited.items()
        if there.get(path) is not None or any(map(needs_file, mine))
    ]
    changes.sort(key=lambda change: change.path)
    hint = "move these files away, choose another MODEL, or use --force to overwrite them"
    return Plan(root, tuple(changes), force, ConflictError, "these files exist with other content", hint)


def states(root: Path, paths: Iterable[str]) -> dict[str, FileState | None]:
    """Return the state of each path below ``root``; see `Folder.state`."""
    if not root.exists():
        return {contained(path): None for path in paths}
    with Folder(root) as folder:
        return {path: folder.state(path) for path in paths}


def _conflict(before: FileState | None, after: FileState, known: str | None) -> str | None:
    if before is None or (before.link == after.link and before.content == after.content):
        return None
    return None if known is not None and known == before.content_sha256 else "differs"


def _others(root: Path, wanted: Iterable[str]) -> list[str]:
    """Return the files below ``root`` that are not part of the output; folders without files do not count."""
    ours = set(wanted)
    found = []
    for folder, folders, names in walk(root):
        folders[:] = sorted(name for name in folders if name not in IGNORED)
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in [*names, *links]:
            path = (Path(folder) / name).relative_to(root).as_posix()
            if path not in ours:
                found.append(path)
    return sorted(found)
