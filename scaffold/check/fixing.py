"""Applies fixes: in memory, round by round, until none is left; then everything is written or nothing."""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from scaffold.check.engine import check_targets
from scaffold.check.finding import Finding
from scaffold.check.hunks import Hunk, apply_hunks, hunks, overlap
from scaffold.check.model.source import SourceFile
from scaffold.check.report import CheckReport
from scaffold.check.settings import Settings
from scaffold.check.targets import Target, find_targets, shown_path
from scaffold.check.writing import write_files
from scaffold.errors import ScaffoldError
from scaffold.plan.change import FileState
from scaffold.plan.unified import difference

MOST_ROUNDS = 12


class ChangedFile(NamedTuple):
    """A file that fixes change.

    Attributes:
        path: resolved path on disk.
        shown: as the user is shown it.
        before, after: its bytes.
    """

    path: Path
    shown: str
    before: bytes
    after: bytes


@dataclass(frozen=True)
class Fixed:
    """What fixes do.

    Attributes:
        files: what they change, sorted by path.
        count: how many findings are gone.
        report: what is found afterwards.
    """

    files: tuple[ChangedFile, ...]
    count: int
    report: CheckReport

    def diff(self) -> str:
        """Return the changes as one unified diff."""
        states = [(file.shown.lstrip("/"), FileState(file.before), FileState(file.after)) for file in self.files]
        return "".join(difference(*state) for state in states)

    def write(self) -> None:
        """Write the changed files, all or none.

        Raises:
            ScaffoldError: a file changed in the meantime, or the disk refused.
        """
        if not self.files:
            return
        root = Path(os.path.commonpath([file.path.parent for file in self.files]))
        names = [file.path.relative_to(root).as_posix() for file in self.files]
        contents = {name: file.after for name, file in zip(names, self.files, strict=True)}
        seen = {name: file.before for name, file in zip(names, self.files, strict=True)}
        write_files(root, contents, seen)


def fix_paths(
    paths: Sequence[Path],
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    settings: Settings | None = None,
    unsafe: bool = False,
    wanted: Collection[Finding] | None = None,
) -> Fixed:
    """Return what fixes would do; nothing is written.

    Args:
        paths, select, ignore, settings: as for `check_paths`.
        unsafe: also make the fixes that may change what the code was meant to do.
        wanted: findings to remove, and what the fixes themselves bring to light; all by default. What was found
            before and is not wanted, such as the findings of a baseline, is left alone.

    Raises:
        ScaffoldError: wrong use, or fixes that never end.
    """
    changed: dict[Path, bytes] = {}
    before: dict[Path, tuple[str, bytes]] = {}
    left_alone: Counter[tuple[str, str, str]] | None = None
    count = 0
    for _ in range(MOST_ROUNDS):
        targets = find_targets(paths, settings, changed)
        report = check_targets(targets, select=select, ignore=ignore)
        if wanted is not None and left_alone is None:
            left_alone = Counter(_name(finding) for finding in report.findings if finding not in wanted)
        able = [f for f in report.findings if f.fix is not None and (unsafe or f.fix.safety == "safe")]
        files, made = _round(targets, [f for f in able if _name(f) not in (left_alone or ())])
        if not files:
            break
        count += made
        for path, (shown, old, new) in files.items():
            before.setdefault(path, (shown, old))
            changed[path] = new
    else:
        raise ScaffoldError(
            "the fixes undo each other; nothing was written", hint="apply them one by one with --select"
        )
    done = [ChangedFile(path, *before[path], changed[path]) for path in sorted(changed)]
    return Fixed(tuple(file for file in done if file.before != file.after), count, report)


def _name(finding: Finding) -> tuple[str, str, str]:
    """Return what identifies a finding while lines move."""
    return finding.rule, finding.path, finding.message + finding.source


def _round(targets: Sequence[Target], findings: Sequence[Finding]) -> tuple[dict[Path, tuple[str, bytes, bytes]], int]:
    """Apply all fixes that do not overlap; return the new content of the files and how many were applied."""
    sources = _sources(targets)
    planned: dict[str, list[Hunk]] = {}
    count = 0
    for finding in findings:
        assert finding.fix is not None
        texts = finding.fix.texts()
        changes = {path: hunks(sources[path].text, text) for path, text in texts.items() if path in sources}
        if not any(changes.values()) or any(overlap(changes[p], planned.get(p, [])) for p in changes):
            continue
        for path, text in texts.items():
            _require_parsable(finding, path, text)
        for path, parts in changes.items():
            planned.setdefault(path, []).extend(parts)
        count += 1
    files = {}
    for path, parts in planned.items():
        source = sources[path]
        new = _encoded(source, apply_hunks(source.text, parts))
        place = next(p for t in targets if (p := t.project.tree.locate(source.path)) is not None and p.exists())
        files[place.resolve()] = (path, source.data, new)
    return files, count


def _sources(targets: Sequence[Target]) -> dict[str, SourceFile]:
    """Return shown path -> file, of everything that was read."""
    return {
        shown_path(target.project, file.path): file
        for target in targets
        for file in target.project.read_files
        if not file.partial
    }


def _encoded(source: SourceFile, text: str) -> bytes:
    try:
        return text.encode(source.encoding)
    except UnicodeEncodeError as error:
        raise ScaffoldError(f"{source.path}: the fix cannot be written in {source.encoding}") from error


def _require_parsable(finding: Finding, path: str, text: str) -> None:
    if not path.endswith(".py"):
        return
    try:
        ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, RecursionError, MemoryError) as error:
        where = f"{finding.path}:{finding.line}"
        hint = f"leave it out with --ignore {finding.rule}, and report it"
        raise ScaffoldError(
            f"the fix of {finding.rule} at {where} does not parse; nothing was written", hint=hint
        ) from error
