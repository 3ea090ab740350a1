"""A commit is all or nothing, whatever happens on the way."""

import bisect
import errno
import fcntl
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from scaffold.errors import ConflictError, ScaffoldError
from scaffold.plan import Plan, plan_checkout, recover
from scaffold.plan.journal import journal_place
from scaffold.render import RenderedFile

FILES = {
    "a/b/new.py": RenderedFile("X = 1\n"),
    "a/run.sh": RenderedFile("#!/bin/sh\n", executable=True),
    "a/link.md": RenderedFile(link_to="b/new.py"),
    "over.txt": RenderedFile("new\n"),
    "linked.txt": RenderedFile("file now\n"),
}


@dataclass(frozen=True)
class Append:
    path: str

    def apply(self, source: str) -> str:
        return source if source.endswith("more\n") else source + "more\n"

    def revert(self, source: str) -> str:
        return source.removesuffix("more\n")


def checkout(root: Path, *, git: bool = False) -> Path:
    (root / "kept").mkdir(parents=True)
    (root / "kept" / "edit.txt").write_text("text\n")
    (root / "over.txt").write_text("old\n")
    (root / "linked.txt").symlink_to("over.txt")
    if git:
        subprocess.run(["git", "init", "--quiet", "--template=", str(root)], check=True)
    return root


def journal(root: Path) -> Path:
    """Where the journal of a tree would stand."""
    folder, name = journal_place(root)
    return folder / name


def plan(root: Path) -> Plan:
    return plan_checkout(FILES, [Append("kept/edit.txt")], root, force=True)


def snapshot(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = (path.read_bytes(), path.stat().st_mode)
    return found


@pytest.mark.parametrize("git", [False, True])
def test_commit_leaves_no_trace_of_itself(tmp_path: Path, git: bool) -> None:
    root = checkout(tmp_path / "root", git=git)
    changed = plan(root).commit()
    assert set(changed) == {*FILES, "kept/edit.txt"}
    assert (root / "kept/edit.txt").read_text() == "text\nmore\n"
    assert not [name for name in snapshot(root) if "omni-scaffold" in name]
    assert recover(root) is None


def test_killed_at_every_step_the_tree_is_old_or_new(tmp_path: Path, killed_at: Callable[..., bool]) -> None:
    root = checkout(tmp_path / "old", git=True)
    old = snapshot(root)
    plan(root).commit()
    new = snapshot(root)
    outcomes = set()
    for step in range(1, 1000):
        root = checkout(tmp_path / f"run{step}", git=True)
        if not killed_at(step, plan(root).commit):
            break
        said = recover(root)
        found = snapshot(root)
        assert found in (old, new), f"half a commit after step {step}"
        outcomes.add((said or "").split(" an ")[0] if found == old else "new")
        assert recover(root) is None
        plan(root).commit()
        assert snapshot(root) == new
    else:
        pytest.fail("the commit never ended")
    assert outcomes == {"", "undid", "new"}
    assert step > 30


def test_killed_while_recovering_it_recovers_again(tmp_path: Path, killed_at: Callable[..., bool]) -> None:
    root = checkout(tmp_path / "count")
    old = snapshot(root)

    def ends(step: int) -> bool:
        return not killed_at(step, plan(checkout(tmp_path / f"n{step}")).commit)

    total = bisect.bisect_left(range(1000), True, lo=1, key=ends)
    for step in range(1, 1000):
        root = checkout(tmp_path / f"r{step}")
        assert killed_at(total - 15, plan(root).commit)
        done = not killed_at(step, partial(recover, root))
        recover(root)
        assert snapshot(root) == old
        if done:
            return
    pytest.fail("the recovery never ended")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
@pytest.mark.parametrize("name", ["replace", "fsync", "symlink", "mkdir", "fchmod"])
def test_a_failing_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, name: str) -> None:
    genuine = getattr(os, name)
    for failing in range(100):
        root = checkout(tmp_path / str(failing))
        old = snapshot(root)
        calls = iter(range(1000))

        def refuse(*args: object, calls=calls, failing=failing, **kwargs: object) -> object:  # type: ignore[no-untyped-def]
            if next(calls) == failing:
                raise OSError(code, os.strerror(code))
            return genuine(*args, **kwargs)

        with monkeypatch.context() as patched:
            patched.setattr(os, name, refuse)
            try:
                plan(root).commit()
            except ScaffoldError as error:
                said = error.line
            else:
                break
        assert f"{os.strerror(code)}; nothing was changed" in said
        assert snapshot(root) == old
        assert recover(root) is None
    assert failing > 0


def test_without_hard_links_a_copy_is_the_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = checkout(tmp_path / "root")
    old = snapshot(root)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", refuse)
    with monkeypatch.context() as patched:
        patched.setattr("scaffold.plan.transaction.place", refuse)
        with pytest.raises(ScaffoldError):
            plan(root).commit()
    assert snapshot(root) == old
    plan(root).commit()
    assert (root / "over.txt").read_text() == "new\n"


def test_an_interrupt_rolls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = checkout(tmp_path / "root")
    old = snapshot(root)

    def interrupt(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr("scaffold.plan.transaction.place", interrupt)
    with pytest.raises(KeyboardInterrupt):
        plan(root).commit()
    assert snapshot(root) == old


def test_a_change_since_the_plan_is_a_conflict(tmp_path: Path) -> None:
    root = checkout(tmp_path / "root")
    planned = plan(root)
    (root / "kept/edit.txt").write_text("mine\n")
    old = snapshot(root)
    with pytest.raises(ConflictError, match=r"changed since the plan was made: kept/edit\.txt"):
        planned.commit()
    assert snapshot(root) == old


def test_a_parent_that_became_a_link_is_refused(tmp_path: Path) -> None:
    root = checkout(tmp_path / "root")
    planned = plan(root)
    (tmp_path / "outside").mkdir()
    (root / "a").symlink_to(tmp_path / "outside")
    with pytest.raises(ScaffoldError, match="a is a link"):
        planned.commit()
    assert list((tmp_path / "outside").iterdir()) == []
    assert (root / "over.txt").read_text() == "old\n"


def test_two_runs_at_once_one_refuses(tmp_path: Path) -> None:
    root = checkout(tmp_path / "root")
    old = snapshot(root)
    holder = os.open(root, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(ScaffoldError, match="another run is writing"):
        plan(root).commit()
    assert snapshot(root) == old
    os.close(holder)
    plan(root).commit()


def test_a_file_edited_after_the_kill_is_kept(tmp_path: Path, killed_at: Callable[..., bool]) -> None:
    for step in range(1, 1000):
        root = checkout(tmp_path / f"run{step}")
        assert killed_at(step, plan(root).commit), "no step left the new file and a journal"
        if (root / "a/b/new.py").exists() and journal(root).exists():
            break
    (root / "a/b/new.py").write_text("mine\n")
    said = recover(root)
    assert said == "undid an interrupted run; changed since and kept: a/b/new.py"
    assert (root / "a/b/new.py").read_text() == "mine\n"
    assert (root / "over.txt").read_text() == "old\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"schema": 1}',
        '{"schema":1,"state":"replacing","folders":["../x"],"entries":[]}',
        '{"schema":1,"state":"replacing","folders":["a/.git/x"],"entries":[]}',
        '{"schema":1,"state":"replacing","folders":[],"entries":[{"path":5,"before":null,"after":null}]}',
        '{"schema":1,"state":"replacing","folders":[],"entries":[{"path":"\\ud800","before":null,"after":null}]}',
        '{"schema":1,"state":"replacing","folders":[],"entries":[{"path":"x","before":7,"after":null}]}',
    ],
)
def test_a_damaged_journal_is_said(tmp_path: Path, text: str) -> None:
    journal(tmp_path).parent.mkdir(parents=True, exist_ok=True)
    journal(tmp_path).write_text(text)
    with pytest.raises(ScaffoldError) as caught:
        recover(tmp_path)
    assert "\n" not in caught.value.line


def test_nothing_to_recover(tmp_path: Path) -> None:
    assert recover(tmp_path) is None
    assert recover(tmp_path / "missing") is None
