"""Merging rendered files with edited ones: added, removed, renamed, broken."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pytest

from scaffold.lifecycle.merge_files import FileMerge, merge_files, merge_text, unresolved
from scaffold.plan.change import FileState

LABELS = ("mine", "base", "new")
LINES = "".join(f"line_{n} = {n}\n" for n in range(20))


class Known:
    """Bases that are given."""

    def __init__(self, bases: Mapping[str, str]) -> None:
        self._bases = bases

    def find(self, path: str, state: FileState | None) -> bytes | None:
        return self._bases[path].encode() if path in self._bases else None


def merge(
    base: Mapping[str, str], disk: Mapping[str, str | None], new: Mapping[str, str], *, force: bool = False
) -> FileMerge:
    recorded = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in base.items()}
    there = {path: FileState.text(text) if text is not None else None for path, text in disk.items()}
    for path in new:
        there.setdefault(path, None)
    wanted = {path: FileState.text(text) for path, text in new.items()}
    return merge_files(recorded, there, wanted, Known(base), labels=LABELS, force=force)  # type: ignore[arg-type]


def after(result: FileMerge) -> dict[str, str | None]:
    return {change.path: change.after.content.decode() if change.after else None for change in result.changes}


def test_file_that_is_no_longer_rendered_goes_unless_edited() -> None:
    result = merge({"a": "1\n", "b": "2\n"}, {"a": "1\n", "b": "mine\n"}, {})
    assert after(result) == {"a": None, "b": "mine\n"}
    assert result.kept == ["b"]


def test_new_file_comes_and_never_over_another() -> None:
    result = merge({}, {"b": "mine\n"}, {"a": "1\n", "b": "2\n"})
    assert [change.conflict for change in result.changes] == [None, "in the way of a new file"]


def test_edited_file_that_is_rendered_elsewhere_takes_the_edits_along() -> None:
    mine = LINES.replace("line_3 = 3", "line_3 = 33")
    new = LINES.replace("line_17 = 17", "line_17 = 71")
    result = merge({"old.py": LINES}, {"old.py": mine}, {"new.py": new, "other.py": "x = 1\n"})
    assert after(result) == {
        "old.py": None,
        "new.py": new.replace("line_3 = 3\n", "line_3 = 33\n"),
        "other.py": "x = 1\n",
    }
    assert not result.kept


def test_file_of_other_content_is_no_new_place() -> None:
    result = merge({"old.py": LINES}, {"old.py": LINES + "mine = 1\n"}, {"new.py": "x = 1\n"})
    assert result.kept == ["old.py"]
    assert after(result)["new.py"] == "x = 1\n"


def test_clean_merge_that_is_no_python_is_told() -> None:
    base = "if A:\n" + LINES.replace("line", "    line")
    mine = base + "elif B:\n    pass\n"
    new = base.replace("if A:", "while A:")
    result = merge({"a.py": base}, {"a.py": mine}, {"a.py": new})
    assert result.broken == ["a.py"]
    assert not result.merged


def test_same_edit_on_both_sides_is_no_conflict() -> None:
    result = merge({"a.py": "x = 1\n"}, {"a.py": "x = 2\n"}, {"a.py": "x = 2\n"})
    assert not result.marked
    assert after(result) == {"a.py": "x = 2\n"}


@pytest.mark.parametrize("force", [False, True])
def test_without_a_base_nothing_is_guessed(force: bool) -> None:
    recorded = {"a.py": "0" * 64}
    there = {"a.py": FileState.text(LINES + "mine = 1\n")}
    new = {"a.py": FileState.text(LINES + "new = 1\n")}
    result = merge_files(recorded, there, new, Known({}), labels=LABELS, force=force)  # type: ignore[arg-type]
    if not force:
        assert "cannot be reproduced" in (result.changes[0].conflict or "")
        return
    assert result.marked == ["a.py"]
    assert after(result) == {"a.py": f"{LINES}<<<<<<< mine\nmine = 1\n=======\nnew = 1\n>>>>>>> new\n"}


def test_line_endings_and_missing_newlines_survive() -> None:
    base, mine, new = b"a\r\nb\r\nc\r\nd\r\ne", b"A\r\nb\r\nc\r\nd\r\ne", b"a\r\nb\r\nc\r\nd\r\nE"
    assert merge_text(mine, base, new, labels=LABELS).content == b"A\r\nb\r\nc\r\nd\r\nE"


def test_markers_count_only_at_the_start_of_lines() -> None:
    there = {
        "a.py": FileState.text('"<<<<<<< x"\n# >>>>>>> y\n'),
        "b.py": FileState.text("<<<<<<< x\n=======\n>>>>>>> y\n"),
        "c.md": FileState(b"<<<<<<< x", link=True),
        "d.py": None,
    }
    assert unresolved(there) == ["b.py"]
