"""A package in verl-omni's smoke tests, as text: its script's entry in a runner, its files in the table of groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from scaffold.errors import ScaffoldError

_ENTRY = re.compile(r'(run_test|run_selected_test)[ \t]+(\d{1,9})[ \t]+"')
_SELECTED = "run_selected_test"
_RULED = re.compile(r"# ── Test \d+: ")
_RULED_WIDTH = 81
_TABLE_HEAD = re.compile(r"^declare -A RUN_TEST=\(\n", re.MULTILINE)
_TABLE_END = re.compile(r"^\)", re.MULTILINE)
_NUMBER = re.compile(r"\[(\d{1,9})\]=")
_OVERRIDES = re.compile(r"^(\w*trainer_args)=\(", re.MULTILINE)
_SCRIPT = re.compile(r"[A-Za-z0-9_./-]+", re.ASCII)
_TITLE = re.compile(r"[A-Za-z0-9 _.,()+/-]+", re.ASCII)


@dataclass(frozen=True)
class _Entry:
    function: str
    number: int
    first: int
    last: int
    text: str

    def runs(self, script: str) -> bool:
        return script in re.split(r"[\s\"']+", self.text)


def add_entry(source: str, script: str, title: str, *, path: str) -> str:
    """Add ``script`` after the last entry under the next free number; an existing entry is left unchanged.

    Args:
        source: text of the runner.
        script: path of the script from the repository's root.
        title: what the runner prints; letters, digits and simple punctuation.
        path: how messages name the runner.

    Raises:
        ScaffoldError: the runner has no entries, or lacks the table that its entries need.
    """
    if not _SCRIPT.fullmatch(script) or not _TITLE.fullmatch(title):
        raise ScaffoldError(f"{path}: {script!r}, {title!r} cannot be written as an entry")
    lines = source.split("\n")
    entries = _entries(lines)
    if not entries:
        raise ScaffoldError(f'{path}: expected entries such as `run_test 0 "title" \\`')
    if any(entry.runs(script) for entry in entries):
        return source
    last = entries[-1]
    # The table may hold a number without an entry; it is not ours to reuse.
    number = max([entry.number for entry in entries] + _table_numbers(source)) + 1
    block = _block(source, last, lines, number, script, title)
    index = last.last + 1
    while index < len(lines) and not lines[index].strip():
        index += 1
    at_end = index == len(lines)
    added = ["", *block] if at_end else [*block, ""]
    index = last.last + 1 if at_end else index
    result = "\n".join([*lines[:index], *added, *lines[index:]])
    return _with_number(result, number, path) if last.function == _SELECTED else result


def remove_entry(source: str, script: str) -> str:
    """Undo `add_entry`; a runner without the script stays as it is."""
    lines = source.split("\n")
    entry = next((entry for entry in _entries(lines) if entry.runs(script)), None)
    if entry is None:
        return source
    first, last = entry.first, entry.last
    if first > 0 and _RULED.match(lines[first - 1]):
        first -= 1
    below = last + 1
    while below < len(lines) and not lines[below].strip():
        below += 1
    # An entry at the end of the file has its empty line above, any other below.
    if below == len(lines) and first > 0 and not lines[first - 1].strip():
        first -= 1
    elif below < len(lines) and below > last + 1:
        last += 1
    result = "\n".join([*lines[:first], *lines[last + 1 :]])
    return _without_number(result, entry.number) if entry.function == _SELECTED else result


@dataclass(frozen=True)
class RunnerEdit:
    """`add_entry` and `remove_entry` for one script, as an edit of the runner at ``path``.

    An entry is ``run_test 7 "title" \\`` followed by what it runs. Older runners call ``run_selected_test`` and list
    the enabled numbers in ``declare -A RUN_TEST=( [0]=1 … )``, which then needs the new number too.
    """

    path: str
    script: str
    title: str

    def apply(self, source: str) -> str:
        """Return the runner with the entry."""
        return add_entry(source, self.script, self.title, path=self.path)

    def revert(self, source: str) -> str:
        """Return the runner without the entry."""
        return remove_entry(source, self.script)


def _entries(lines: list[str]) -> list[_Entry]:
    found = []
    for first, line in enumerate(lines):
        match = _ENTRY.match(line)
        if not match:
            continue
        last = first
        while last + 1 < len(lines) and lines[last].endswith("\\"):
            last += 1
        found.append(_Entry(match[1], int(match[2]), first, last, "\n".join(lines[first : last + 1])))
    return found


def _block(source: str, last: _Entry, lines: list[str], number: int, script: str, title: str) -> list[str]:
    overrides = _OVERRIDES.search(source)
    arguments = f' "${{{overrides[1]}[@]}}"' if overrides else ""
    block = [
        f'{last.function} {number} "{title}" \\',
        '    env CUDA_VISIBLE_DEVICES="${CUDA_DEVICE_LIST}" NUM_GPUS="${NUM_GPUS}" \\',
        f"    bash {script}{arguments}",
    ]
    first = last.first
    while first > 0 and lines[first - 1].startswith("#"):
        first -= 1
    if any(_RULED.match(line) for line in lines[first : last.first]):
        heading = f"# ── Test {number}: {title} "
        block.insert(0, heading + "─" * max(2, _RULED_WIDTH - len(heading)))
    return block


def _table(source: str) -> tuple[int, int] | None:
    """Return the first and last line of the table, in one pass however often its head occurs."""
    head = _TABLE_HEAD.search(source)
    end = _TABLE_END.search(source, head.end()) if head else None
    return (head.end(), end.start()) if head and end else None


def _table_numbers(source: str) -> list[int]:
    table = _table(source)
    return [int(number) for number in _NUMBER.findall(source[slice(*table)])] if table else []


def _with_number(source: str, number: int, path: str) -> str:
    table = _table(source)
    if table is None:
        raise ScaffoldError(f"{path}: expected a table `declare -A RUN_TEST=( [0]=1 … )`")
    start, end = table
    body = source[start:end].rstrip()
    new = f"{body} [{number}]=1" if body else f"    [{number}]=1\n"
    return source[:start] + new + source[start + len(body) :]


def _without_number(source: str, number: int) -> str:
    table = _table(source)
    if table is None:
        return source
    start, end = table
    body = re.sub(rf"^[ \t]*\[{number}\]=1\n|[ \t]*\[{number}\]=1\b", "", source[start:end], flags=re.MULTILINE)
    return source[:start] + body + source[end:]


GROUP = "ci-e2e-diffusion"
_PATTERN = re.compile(r"[A-Za-z0-9_./*-]+", re.ASCII)
# A pattern of one word in a name, and letters that do not follow it.
_WORD = re.compile(r'(?P<start> *"[\w./-]*\*)(?P<word>\w+)(?:\[!(?P<letters>\w+)\])?(?P<end>\*",\s*)', re.ASCII)


@dataclass(frozen=True)
class SmokeGroupEdit:
    """Patterns of changed files that start the diffusion group, added at the end of its tuple in ``path``.

    A changed file that matches no pattern starts every group; one that matches starts its own group.
    A word in a pattern of another group may be the start of a longer one in the name of a file: ``*omni*`` takes
    ``omnigen2`` for its own. Such a pattern is made narrower, ``*omni[!g]*``.

    Attributes:
        path: of the table.
        patterns: of the package.
        files: smoke tests of the package, which start no other group.
    """

    path: str
    patterns: tuple[str, ...]
    files: tuple[str, ...] = ()

    def apply(self, source: str) -> str:
        """Return the table with the patterns; an existing one stays where it is.

        Raises:
            ScaffoldError: the group has no tuple of patterns.
        """
        lines = source.splitlines(keepends=True)
        first, last = _tuple(lines, self.path)
        there = {line.strip() for line in lines[first:last]}
        added = [f"        {entry}\n" for entry in self._entries() if entry not in there]
        others = self._others(lines, first, last, str.__add__)
        return "".join([*others[:last], *added, *others[last:]])

    def revert(self, source: str) -> str:
        """Return the table without the patterns."""
        mine = set(self._entries())
        lines = source.splitlines(keepends=True)
        if not any(line.strip() in mine for line in lines):
            return source
        first, last = _tuple(lines, self.path)
        lines = self._others(lines, first, last, lambda there, letter: there.replace(letter, ""))
        return "".join(line for i, line in enumerate(lines) if not (first <= i < last and line.strip() in mine))

    def _others(self, lines: list[str], first: int, last: int, change: Callable[[str, str], str]) -> list[str]:
        """Change, in patterns of other groups, the letters that do not follow a word: those that do in ``files``."""

        def changed(line: str) -> str:
            found = _WORD.fullmatch(line)
            if found is None:
                return line
            letters, pattern = found["letters"] or "", f"{found['start']}{found['word']}*".lstrip(' "')
            for file in (file for file in self.files if fnmatchcase(file, pattern)):
                _, _, behind = file.rpartition(found["word"])
                letters = change(letters.replace(behind[:1], ""), behind[:1]) if behind[:1].isalnum() else letters
            letters = "".join(sorted(set(letters)))
            return f"{found['start']}{found['word']}{f'[!{letters}]' if letters else ''}{found['end']}"

        return [line if first <= i < last else changed(line) for i, line in enumerate(lines)]

    def _entries(self) -> list[str]:
        if not all(map(_PATTERN.fullmatch, self.patterns)):
            raise ScaffoldError(f"{self.path}: {', '.join(self.patterns)} cannot be written as patterns")
        return [f'"{pattern}",' for pattern in self.patterns]


def _tuple(lines: list[str], path: str) -> tuple[int, int]:
    """Return the first line of the group's patterns and the one that closes them."""
    texts = [line.rstrip() for line in lines]
    try:
        table = texts.index("GROUP_PATTERNS = {")
        first = texts.index(f'    "{GROUP}": (', table) + 1
        return first, texts.index("    ),", first)
    except ValueError:
        raise ScaffoldError(f"{path}: expected patterns of {GROUP} in GROUP_PATTERNS") from None
