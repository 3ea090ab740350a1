"""Nothing that a repository's configuration names is started, and the answers are right all the same."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError
from scaffold.files.git import repository as find_repository
from scaffold.files.git import uncommitted, versions
from scaffold.lifecycle.merge_files import merge_text
from scaffold.plan.journal import journal_place

Git = Callable[..., str]


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


def configure(git: Git, root: Path, mark: Path) -> None:
    """Name a program that leaves a mark under every key that git knows to take one."""
    program = f"sh -c 'echo ran >> {mark}; cat'"
    for key in (
        *("core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.gitProxy", "core.askPass"),
        *("core.alternateRefsCommand", "diff.external", "diff.x.command", "diff.x.textconv", "merge.x.driver"),
        *("filter.x.clean", "filter.x.smudge", "credential.helper", "gpg.program", "pager.status", "pager.log"),
        *("pager.rev-list", "pager.cat-file", "remote.origin.uploadpack", "interactive.diffFilter"),
        *("uploadpack.packObjectsHook", "sequence.editor"),
    ):
        git(root, "config", key, program)
    for command in ("status", "log", "show", "rev-parse", "rev-list", "cat-file", "merge-file", "config"):
        git(root, "config", f"alias.{command}", f"!{program}")
    git(root, "config", "filter.x.required", "true")
    git(root, "config", "filter.y.process", program)
    git(root, "config", "log.showSignature", "true")
    hooks = root / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-index-change", "reference-transaction", "fsmonitor-watchman", "query-watchman"):
        (hooks / hook).write_text(f"#!/bin/sh\necho ran >> {mark}\n")
        (hooks / hook).chmod(0o755)
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/attributes").write_text("*.txt filter=x diff=x merge=x\n*.bin filter=y\n")
    (root / ".gitattributes").write_text("*.txt filter=x diff=x merge=x\n*.bin filter=y\n")


def test_status_of_a_strangers_checkout(repository: Path, git: Git, mark: Path) -> None:
    (repository / "c.bin").write_text("c\n")
    git(repository, "add", "c.bin")
    configure(git, repository, mark)
    (repository / "a/text.txt").write_text("ONE\n")
    (repository / "b.txt").touch()
    (repository / "n\u00e9w\n.txt").write_text("")
    found = uncommitted(repository)
    assert not mark.exists()
    assert found == [".gitattributes", "a/text.txt", "c.bin", "n\u00e9w\n.txt"]
    assert uncommitted(repository / "a") == ["text.txt"]
    # The attack works on those who ask in the ordinary way.
    subprocess.run(["git", "-C", str(repository), "status", "--porcelain"], capture_output=True, check=False)
    assert mark.exists()


def test_history_of_a_strangers_checkout(repository: Path, git: Git, mark: Path) -> None:
    configure(git, repository, mark)
    assert versions(repository, "a/text.txt") == [b"two\n", b"one\n"]
    assert versions(repository / "a", "text.txt") == [b"two\n", b"one\n"]
    assert versions(repository, "a/text.txt", limit=1) == [b"two\n"]
    assert versions(repository, "a/*.txt") == versions(repository, "missing") == versions(repository, "a\nb") == []
    assert not mark.exists()


def test_missing_objects_are_not_fetched(repository: Path, git: Git, tmp_path: Path, mark: Path) -> None:
    git(repository, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--filter=blob:none", "--no-checkout", f"file://{repository}", str(clone))
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho ran >> {mark}\nexec git-upload-pack "$@"\n')
    program.chmod(0o755)
    git(clone, "config", "remote.origin.uploadpack", str(program))
    assert versions(clone, "a/text.txt") == []
    uncommitted(clone)
    assert not mark.exists()
    subprocess.run(["git", "-C", str(clone), "show", "HEAD:a/text.txt"], capture_output=True, check=False)
    assert mark.exists()


def test_submodules_have_a_configuration_too(repository: Path, git: Git, tmp_path: Path, mark: Path) -> None:
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", f"file://{repository}", "sub")
    git(repository, "commit", "--quiet", "--message", "sub")
    module = repository / "sub"
    git(module, "config", "filter.x.clean", f"sh -c 'echo ran >> {mark}; cat'")
    (repository / ".git/modules/sub/info").mkdir(exist_ok=True)
    (repository / ".git/modules/sub/info/attributes").write_text("*.txt filter=x\n")
    (module / "b.txt").write_text("changed\n")
    assert uncommitted(repository) == []
    assert not mark.exists()
    subprocess.run(["git", "-C", str(repository), "status", "--porcelain"], capture_output=True, check=False)
    assert mark.exists()


def test_settings_that_compare_files_count(repository: Path, git: Git, tmp_path: Path) -> None:
    (repository / "b.txt").chmod(0o755)
    (repository / "ignored.log").write_text("")
    (repository / "a/text.txt").unlink()
    git(repository, "-c", "core.autocrlf=true", "checkout", "--quiet", "a/text.txt")
    os.utime(repository / "a/text.txt", (1, 1))
    assert (repository / "a/text.txt").read_bytes() == b"two\r\n"
    assert uncommitted(repository) == ["a/text.txt", "b.txt", "ignored.log"]
    git(repository, "config", "core.fileMode", "false")
    git(repository, "config", "core.autocrlf", "true")
    (tmp_path / "ignore").write_text("*.log\n")
    git(repository, "config", "core.excludesFile", str(tmp_path / "ignore"))
    assert uncommitted(repository) == []
    for strange in ("/" + "x" * 5000, "/dev/zero"):
        git(repository, "config", "core.excludesFile", strange)
        assert uncommitted(repository) == ["ignored.log"]
    git(repository, "config", "core.excludesFile", "~nobody-of-this-name/x")
    assert uncommitted(repository) == []  # git itself refuses such a configuration


@pytest.mark.parametrize("form", ["sha256", "split index", "worktree", "unborn", "info/exclude"])
def test_every_form_of_repository(repository: Path, git: Git, tmp_path: Path, form: str) -> None:
    root = repository
    if form == "sha256":
        root = tmp_path / "other"
        git(tmp_path, "init", "--quiet", "--object-format=sha256", str(root))
        (root / "b.txt").write_text("b\n")
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "--message", "x")
    elif form == "split index":
        git(root, "update-index", "--split-index")
        git(root, "update-index", "--refresh")
    elif form == "worktree":
        root = tmp_path / "tree"
        git(repository, "worktree", "add", "--quiet", str(root))
    elif form == "unborn":
        root = tmp_path / "unborn"
        git(tmp_path, "init", "--quiet", str(root))
    else:
        (root / ".git/info").mkdir(exist_ok=True)
        (root / ".git/info/exclude").write_text("hidden\n")
        (root / "hidden").write_text("")
    assert uncommitted(root) == []
    (root / "new.txt").write_text("")
    assert uncommitted(root) == ["new.txt"]
    assert versions(root, "b.txt") == ([] if form == "unborn" else [b"b\n"])


def test_a_hook_of_git_names_another_repository(
    repository: Path, tmp_path: Path, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "--quiet", str(tmp_path / "other"))
    (repository / "new.txt").write_text("")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other/.git/index"))
    assert uncommitted(repository) == ["new.txt"]


def test_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert uncommitted(tmp_path / "plain") == versions(tmp_path / "plain", "x") == []
    monkeypatch.setenv("PATH", str(tmp_path / "plain"))
    assert uncommitted(repository) == versions(repository, "b.txt") == []


def test_a_tree_is_not_its_own_repository(repository: Path, git: Git, tmp_path: Path, mark: Path) -> None:
    """A branch can track what looks like a bare repository, with a configuration and a journal."""
    inner = repository / "inner"
    git(tmp_path, "init", "--quiet", "--bare", str(inner))
    git(inner, "config", "core.bare", "false")
    git(inner, "config", "core.worktree", str(inner))
    git(inner, "config", "core.fsmonitor", f"sh -c 'echo ran >> {mark}'")
    uncommitted(inner)
    versions(inner, "HEAD")
    assert not mark.exists()
    assert find_repository(inner) is None
    assert not journal_place(inner)[0].is_relative_to(repository)


def test_a_work_tree_that_claims_to_be_elsewhere(repository: Path, git: Git, tmp_path: Path) -> None:
    git(repository, "config", "core.worktree", str(tmp_path / "home"))
    assert find_repository(repository) is None
    assert uncommitted(repository) == []


def test_a_pipe_in_place_of_gits_files(repository: Path, pipe: Callable[[Path], Path]) -> None:
    for name in ("index", "info/exclude", "shallow"):
        pipe(repository / ".git" / name)
    uncommitted(repository)
    versions(repository, "b.txt")


@pytest.mark.parametrize("place", [".gitignore", "a/.gitattributes", "configuration"])
def test_git_that_waits_for_a_pipe_is_ended_and_it_is_said(
    repository: Path, git: Git, pipe: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    pipe(repository / place)
    if place == "configuration":
        git(repository, "config", "include.path", "../configuration")
    elif place == "a/.gitattributes":
        os.utime(repository / "a/text.txt", (1, 1))
    monkeypatch.setattr("scaffold.files.git.TIMEOUT_SECONDS", 3)
    with pytest.raises(ScaffoldError, match=r"git gives no answer .* within 3 s; is a file"):
        uncommitted(repository)


def test_merging_reads_no_configuration(
    repository: Path, git: Git, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    git(repository, "config", "merge.conflictStyle", "diff3")
    (repository / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(repository / "tmp"))
    merged = merge_text(b"mine\n", b"base\n", b"new\n", labels=("a", "b", "c"))
    assert merged.conflicts
    assert b"|||||||" not in merged.content
    assert list((repository / "tmp").iterdir()) == []
