"""A script's entry in a smoke runner, as text: ``run_test 7 "title" \\`` followed by what it runs.

Newer runners call ``run_test`` for every entry. Older ones call ``run_selected_test`` and list the enabled numbers in
``declare -A RUN_TEST=( [0]=1 … )``, which then needs the new number too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    """`add_entry` and `remove_entry` for one script, as an edit of the runner at ``path``."""

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
