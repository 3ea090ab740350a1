"""Unified diffs in git's format, stable and free of paths of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from scaffold.plan.change import FileState

_NO_NEWLINE = "\\ No newline at end of file\n"


def difference(path: str, before: FileState | None, after: FileState | None, *, context: int = 3) -> str:
    """Return the diff of two states of ``path`` for ``git apply``; empty if they are equal."""
    if before == after:
        return ""
    if before and after and before.link != after.link:
        return difference(path, before, None, context=context) + difference(path, None, after, context=context)
    lines = [f"diff --git a/{path} b/{path}\n"]
    if before is None and after is not None:
        lines.append(f"new file mode {after.mode}\n")
    elif after is None and before is not None:
        lines.append(f"deleted file mode {before.mode}\n")
    elif before and after and before.mode != after.mode:
        lines += [f"old mode {before.mode}\n", f"new mode {after.mode}\n"]
    old, new = _lines(before), _lines(after)
    if old != new:
        lines += [f"--- a/{path}\n" if before else "--- /dev/null\n", f"+++ b/{path}\n" if after else "+++ /dev/null\n"]
        lines += _hunks(old, new, context)
    elif not old:
        lines.append("index 0000000..e69de29\n" if before is None else "index e69de29..0000000\n")
    return "".join(lines)


def _lines(state: FileState | None) -> list[str]:
    """Split at line feeds only; to git, other separators are part of a line."""
    text = state.content.decode("utf-8", "surrogateescape") if state else ""
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _hunks(old: Sequence[str], new: Sequence[str], context: int) -> Iterator[str]:
    # Without autojunk: its heuristic drops frequent lines of long files and moves hunks.
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(context):
        first, last = group[0], group[-1]
        yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from _marked(" ", old[i1:i2])
            else:
                yield from _marked("-", old[i1:i2])
                yield from _marked("+", new[j1:j2])


def _range(start: int, stop: int) -> str:
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start if length == 0 else start + 1},{length}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n{_NO_NEWLINE}"
