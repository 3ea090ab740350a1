"""Where a report can be written, and what is there afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from report_examples import all_statuses

from scaffold.errors import ScaffoldError
from scaffold.verify.report.destination import check_destination, check_suffix, write_report


@pytest.mark.parametrize(
    ("name", "start"), [("r.html", "<!doctype html>"), ("r.md", "### Test\n"), ("R.HTML", "<!doctype html>")]
)
def test_the_suffix_picks_the_format(tmp_path: Path, name: str, start: str) -> None:
    write_report(all_statuses(), tmp_path / name)
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["r.pdf", "r", ".html", "r.html.txt", "html"])
def test_another_suffix_is_refused_and_both_are_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ScaffoldError, match=r"\.html .*\.md "):
        check_suffix(tmp_path / name)
    with pytest.raises(ScaffoldError) as caught:
        write_report(all_statuses(), tmp_path / name)
    assert name in caught.value.line
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_report_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "r.md"
    path.write_text("old", encoding="utf-8")
    write_report(all_statuses(), path)
    assert path.read_text(encoding="utf-8").startswith("### Test")


def test_the_same_report_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        write_report(all_statuses(), tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_the_umask_decides_who_may_read(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_report(all_statuses(), tmp_path / "r.md")
    finally:
        os.umask(before)
    assert (tmp_path / "r.md").stat().st_mode & 0o777 == 0o640


def test_a_folder_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "r.html").mkdir()
    for call in (lambda path: write_report(all_statuses(), path), check_destination):
        with pytest.raises(ScaffoldError, match="it is a folder"):
            call(tmp_path / "r.html")
    assert (tmp_path / "r.html").is_dir()
    assert list((tmp_path / "r.html").iterdir()) == []


def test_what_is_no_regular_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r.md")
    with pytest.raises(ScaffoldError, match="not a regular file"):
        write_report(all_statuses(), tmp_path / "r.md")


@pytest.mark.parametrize("parent", ["missing", "file", "file/deeper"])
def test_a_missing_folder_is_one_line(tmp_path: Path, parent: str) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ScaffoldError, match="is not a folder; create it first"):
        check_destination(tmp_path / parent / "r.md")


def test_a_disk_that_refuses_is_one_line_and_leaves_the_old_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.md"
    path.write_text("old", encoding="utf-8")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ScaffoldError, match="No space left on device") as caught:
        write_report(all_statuses(), path)
    assert "\n" not in caught.value.line
    assert path.read_text(encoding="utf-8") == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.md"]


def test_a_name_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match="cannot write the report"):
        write_report(all_statuses(), tmp_path / f"{'x' * 300}.md")
