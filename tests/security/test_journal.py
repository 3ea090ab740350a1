"""A journal is obeyed only where nobody but this tool can have put it, and only as far as digests prove it."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.plan import Plan, plan_checkout, recover
from scaffold.plan.change import FileState
from scaffold.plan.folder import contained
from scaffold.plan.journal import MARK, journal_place
from scaffold.render import RenderedFile

NEW = ("new", "bagel", "--vllm-omni", "0.27.0rc1")


def plan(root: Path) -> Plan:
    return plan_checkout({"a/text.txt": RenderedFile("mine\n")}, [], root, force=True)


def hostile(root: Path) -> str:
    """A journal that undoes the making of ``b.txt``."""
    digest = FileState((root / "b.txt").read_bytes()).digest
    entries = [{"path": "b.txt", "before": None, "after": digest}]
    return json.dumps({"schema": 1, "state": "replacing", "folders": [], "emptied": [], "entries": entries})


@pytest.mark.parametrize("form", ["worktree", "submodule", "archive"])
def test_a_journal_that_a_branch_tracks(
    repository: Path, git: Callable[..., str], tmp_path: Path, form: str, scaffold_cli: Callable[..., Any]
) -> None:
    """`.git` is a file or absent, where a journal used to stand in the root."""
    text = hostile(repository)
    for name in (".omni-scaffold-journal.json", "omni-scaffold-journal.json"):
        (repository / name).write_text(text)
    git(repository, "add", "--all", "--force")
    git(repository, "commit", "--quiet", "--message", "journal")
    root = tmp_path / "tree"
    if form == "worktree":
        git(repository, "worktree", "add", "--quiet", str(root))
    elif form == "submodule":
        git(tmp_path, "init", "--quiet", str(tmp_path / "outer"))
        allowed = ("-c", "protocol.file.allow=always")
        git(tmp_path / "outer", *allowed, "submodule", "--quiet", "add", str(repository), "tree")
        root = tmp_path / "outer/tree"
        assert (root / ".git").is_file()
    else:
        root.mkdir()
        git(repository, "--work-tree", str(root), "checkout", "--quiet", "HEAD", "--", ".")
    before = {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert before["b.txt"]
    assert recover(root) is None
    scaffold_cli("new", "x", "--verl-omni", root, "--dry-run").refusal(2)
    plan(root).commit()
    assert {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()} == {
        **before,
        "text.txt": b"mine\n",
    }


@pytest.mark.parametrize("form", ["repository", "plain"])
def test_it_stands_in_the_users_folder(repository: Path, tmp_path: Path, form: str) -> None:
    root = repository
    if form == "plain":
        root = tmp_path / "plain"
        (root / "a").mkdir(parents=True)
    places = [journal_place(root), journal_place(root / "a")]
    assert {folder for folder, _ in places} == {Path(os.environ["XDG_STATE_HOME"], "omni-scaffold")}
    assert len({name for _, name in places}) == 2


def test_one_that_an_archive_has_in_gits_folder_is_not_obeyed(repository: Path) -> None:
    for name in ("omni-scaffold-journal.json", ".omni-scaffold-journal.json.tmp", journal_place(repository)[1]):
        (repository / ".git" / name).write_text(hostile(repository))
    assert recover(repository) is None
    assert (repository / "b.txt").exists()


def test_what_cannot_be_tidied_up_is_said(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = os.unlink

    def refusing(path: Any, **options: Any) -> None:
        if str(path).endswith("-old"):
            raise OSError(errno.EIO, "Input/output error")
        real(path, **options)

    (repository / "a").mkdir(exist_ok=True)
    (repository / "a/text.txt").write_text("before\n")
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refusing)
        plan(repository).commit()
    said = capsys.readouterr().err
    assert "all files were written; the next run there tidies up; Input/output error" in said
    assert recover(repository) == "finished an interrupted run: all its files were in place"
    assert not list((repository / "a").glob(".*old"))


def test_a_read_only_disk_was_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    root.mkdir()
    real = os.unlink

    def unlink(path: Any, **options: Any) -> None:
        if MARK in str(path) and "journal" not in str(path):
            raise OSError(errno.EROFS, "Read-only file system")
        real(path, **options)

    def mkdir(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    (Path(os.environ["XDG_STATE_HOME"]) / "omni-scaffold").mkdir(parents=True, exist_ok=True, mode=0o700)
    monkeypatch.setattr(os, "unlink", unlink)
    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(ScaffoldError, match="Read-only file system; nothing was changed; see that there is room"):
        plan(root).commit()
    assert recover(root) is None


def test_state_folder_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "state/omni-scaffold").mkdir(parents=True)
    (tmp_path / "state/omni-scaffold").chmod(0o777)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert journal_place(root)[0] == tmp_path / "home/.local/state/omni-scaffold"
    assert list((tmp_path / "home").iterdir()) == []  # asking makes nothing
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    plan(root).commit()
    assert (tmp_path / "home/.local/state/omni-scaffold").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file/none"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    own = tmp_path / f"temporary/omni-scaffold-{os.geteuid()}"
    assert journal_place(root)[0] == own
    own.symlink_to(tmp_path)
    with pytest.raises(ScaffoldError, match="XDG_STATE_HOME"):
        journal_place(root)


def interrupted(repository: Path, tmp_path: Path, killed_at: Callable[..., bool], content: bytes) -> Path:
    """Return a copy of the repository in which a commit was killed after a file had its new content."""
    for step in range(1, 100):
        root = Path(shutil.copytree(repository, tmp_path / f"run{step}", symlinks=True))
        if not killed_at(step, plan(root).commit):
            break
        folder, name = journal_place(root)
        if (root / "a/text.txt").read_bytes() == content and (folder / name).exists():
            journal = json.loads((folder / name).read_text())
            if journal["state"] == "replacing":
                return root
    raise AssertionError("no step left such a state")


def test_a_backup_with_other_content_is_not_put_back(
    repository: Path, tmp_path: Path, killed_at: Callable[..., bool]
) -> None:
    root = interrupted(repository, tmp_path, killed_at, b"mine\n")
    backup = root / "a/.text.txt.omni-scaffold-old"
    assert backup.read_text() == "two\n"
    backup.unlink()
    backup.write_text("theirs\n")
    assert recover(root) == "undid an interrupted run; changed since and kept: a/text.txt"
    assert (root / "a/text.txt").read_text() == "mine\n"
    assert backup.read_text() == "theirs\n"
    assert recover(root) is None


def test_a_backup_that_is_gone(repository: Path, tmp_path: Path, killed_at: Callable[..., bool]) -> None:
    root = interrupted(repository, tmp_path, killed_at, b"mine\n")
    (root / "a/.text.txt.omni-scaffold-old").unlink()
    assert recover(root) == "undid an interrupted run; changed since and kept: a/text.txt"
    assert (root / "a/text.txt").read_text() == "mine\n"


@pytest.mark.parametrize(
    "path", ["a/.git/config", "a/.git", ".git", "A/.GIT/hooks/x", "x/GIT~1/config", "..", "a//b", "/a", "a\\b", ""]
)
def test_gits_folders_are_refused_at_any_depth(path: str) -> None:
    with pytest.raises(ScaffoldError, match="does not stay inside"):
        contained(path)
    assert contained("a/.github/x.git") == "a/.github/x.git"


@pytest.mark.parametrize("command", ["new", "update", "remove", "drift"])
def test_a_dry_run_recovers_nothing(
    repository: Path, tmp_path: Path, killed_at: Callable[..., bool], scaffold_cli: Callable[..., Any], command: str
) -> None:
    (repository / "verl_omni/pipelines/mine").mkdir(parents=True)
    (repository / "verl_omni/pipelines/mine/scaffold.toml").write_text("")
    root = interrupted(repository, tmp_path, killed_at, b"mine\n")
    package = root / "verl_omni/pipelines/mine"
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    arguments = {
        "new": (*NEW, "--patch", "--out", root, "--dry-run"),
        "update": ("update", package, "--diff"),
        "remove": ("remove", package, "--dry-run"),
        "drift": ("drift", "bagel", "--from", "0.27.0rc1", "--to", "0.30.0", "--package", package),
    }[command]
    said = scaffold_cli(*arguments).refusal(2)
    assert "interrupted run left its changes half made" in said
    assert "undoes or finishes it" in said
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert recover(root) == "undid an interrupted run"
