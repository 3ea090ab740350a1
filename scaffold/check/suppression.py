"""``# omni-scaffold: ignore[OSC203] reason``: what a comment hides, and comments that are wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from scaffold.check.finding import Finding, Span
from scaffold.check.model.python import PythonFile
from scaffold.check.model.shell import ShellScript
from scaffold.check.model.source import SourceFile
from scaffold.check.rule import Rule
from scaffold.check.targets import Target

MARK = "omni-scaffold:"
_COMMENT = r"#\s*omni-scaffold:\s*ignore(?P<ids>\[(?P<list>[^\]]*)\])?(?P<reason>.*)$"


class Ignore(NamedTuple):
    """One suppression comment.

    Attributes:
        file: where it stands.
        line: its line.
        lines: the lines whose findings it hides: its own; where it stands alone, the next one with code.
        span: the comment.
        ids: the identifiers it names, each with its place.
        reason: the text after them.
        used: identifiers that hid something.
    """

    file: SourceFile
    line: int
    lines: range
    span: Span
    ids: list[tuple[str, Span]]
    reason: str
    used: set[str]


class Comments:
    """The suppression comments of everything a target covers.

    Args:
        target: the packages, with the files around them.
        rules: the rules that run; a comment for another rule is not reported as unused.
    """

    def __init__(self, target: Target, rules: Sequence[Rule]) -> None:
        self.running = {rule.id for rule in rules}
        files: dict[str, SourceFile] = {}
        for package in target.packages:
            for file in (*package.files, *package.related):
                files[file.path] = file
        if target.whole:
            for runner in (*target.project.runners, *target.project.e2e_scripts, *target.project.example_scripts):
                files[runner.path] = runner
        self.files = [file for file in files.values() if target.covers(file.shown)]
        self.ignores = [ignore for file in self.files if not file.partial for ignore in ignores(file)]
        self._by_file: dict[str, list[Ignore]] = {}
        for ignore in self.ignores:
            self._by_file.setdefault(ignore.file.shown, []).append(ignore)

    def hides(self, finding: Finding) -> bool:
        """Whether a comment hides a finding; the comment is noted as used."""
        hidden = False
        for ignore in self._by_file.get(finding.key, ()):
            if finding.rule in (name for name, _ in ignore.ids):
                if finding.line in ignore.lines or finding.end_line in ignore.lines:
                    ignore.used.add(finding.rule)
                    hidden = True
        return hidden


def ignores(file: SourceFile) -> list[Ignore]:
    """Return the suppression comments of a file."""
    if MARK.encode() not in file.data:
        return []
    found = []
    for line, (column, text) in sorted(_comments(file).items()):
        match = re.match(_COMMENT, text)
        if match is None:
            continue
        ids = []
        start = column + match.start("list") if match["list"] is not None else column
        for part in re.finditer(r"[^,\s]+", match["list"] or ""):
            ids.append((part[0].upper(), Span(line, start + part.start(), line, start + part.end())))
        span = Span(line, column, line, column + len(text.rstrip()))
        reason = match["reason"].strip(" \t:–—-")
        found.append(Ignore(file, line, _lines(file, line, column), span, ids, reason, set()))
    return found


def _comments(file: SourceFile) -> dict[int, tuple[int, str]]:
    if isinstance(file, (PythonFile, ShellScript)):
        return file.comments
    # YAML, TOML and the like: a # after white space starts a comment.
    found = {}
    for number, line in enumerate(file.lines, start=1):
        match = re.search(r"(?:^|\s)(#\s*omni-scaffold:.*)$", line)
        if match:
            found[number] = (match.start(1) + 1, match[1])
    return found


def _lines(file: SourceFile, line: int, column: int) -> range:
    if file.line(line)[: column - 1].strip():
        return range(line, line + 1)
    after = line + 1
    while after <= len(file.lines) and (not file.line(after).strip() or file.line(after).lstrip().startswith("#")):
        after += 1
    end = after
    if isinstance(file, ShellScript):
        # No comment can stand inside a command that goes on over lines.
        while end < len(file.lines) and file.line(end).endswith("\\"):
            end += 1
    return range(after, end + 1)
