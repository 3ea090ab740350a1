"""A pipe, a device, a file without end and a link that leads out: none is read, and none is waited for."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.check.model.tree import DiskTree, UnreadableError
from scaffold.errors import ScaffoldError
from scaffold.files import reading
from scaffold.plan import recover
from scaffold.plan.journal import journal_place
from scaffold.plan.output import states
from scaffold.target.pin import vllm_omni_pin
from scaffold.upstream import locate
from scaffold.verify.child.isolation import last_words
from scaffold.verify.package import open_package
from scaffold.verify.rollout.level import KEPT_BYTES, kept_log
from scaffold.verify.rollout.process import last_line

GIGABYTES = 3 << 30
Pipe = Callable[[Path], Path]


def sparse(path: Path, end: bytes = b"") -> Path:
    """Write a file of gigabytes that takes no room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(GIGABYTES)
        file.seek(0, os.SEEK_END)
        file.write(end)
    return path


def in_little_memory(action: Callable[[], object]) -> None:
    """Run ``action`` in a fork that may take 300 MB more than there is now."""
    child = os.fork()
    if child == 0:
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * os.sysconf("SC_PAGE_SIZE") + (300 << 20)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_only_regular_files_of_bounded_size_inside(tmp_path: Path, pipe: Pipe) -> None:
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "file").write_bytes(b"a\r\nb\rc\n")
    (tmp_path / "outside").write_text("secret")
    (tree / "near").symlink_to("inner/../file")
    (tree / "far").symlink_to(tmp_path / "outside")
    (tree / "folder").symlink_to(tmp_path)
    (tree / "zero").symlink_to("/dev/zero")
    pipe(tree / "pipe")
    assert reading.read_bytes(tree / "file", 7, inside=tree) == b"a\r\nb\rc\n"
    assert reading.read_text(tree / "near", inside=tree) == "a\nb\nc\n"
    assert reading.read_tail(tree / "file", 2) == b"c\n"
    assert reading.read_text(tree / "far") == "secret"
    for name, told in (
        ("far", "link that leads out"),
        ("folder/outside", "link that leads out"),
        ("zero", "link that leads out"),
        ("pipe", "not a regular file"),
    ):
        with pytest.raises(reading.RefusedFileError, match=told):
            reading.read_bytes(tree / name, inside=tree)
    with pytest.raises(reading.RefusedFileError, match="not a regular file"):
        reading.read_bytes(tree / "zero")
    with pytest.raises(reading.RefusedFileError, match="larger than 6 bytes"):
        reading.read_bytes(tree / "file", 6)
    with pytest.raises(IsADirectoryError):
        reading.read_bytes(tree / "inner")
    with pytest.raises(FileNotFoundError):
        reading.read_bytes(tree / "none")
    # A file that claims to be empty and is not.
    assert reading.read_text("/proc/self/status").startswith("Name:")
    with pytest.raises(reading.RefusedFileError, match="larger than 10 bytes"):
        reading.read_bytes("/proc/self/status", 10)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800"])
def test_a_text_that_is_no_path_is_refused_like_a_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(reading.RefusedFileError, match="is not a path"):
        reading.read_bytes(tmp_path / name)


def test_a_folder_is_walked_inside_its_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner/file").write_text("x")
    (tree / "near").symlink_to("inner")
    (tree / "far").symlink_to("/")
    (tree / "inner/far").symlink_to("/")
    for name in ("inner", "near"):
        assert [names for _, _, names in reading.walk(tree / name, inside=tree)] == [["file"]]
    assert sum(len(names) for _, _, names in reading.walk(tree, inside=tree)) == 1
    with pytest.raises(reading.RefusedFileError, match="leads out"):
        next(reading.walk(tree / "far", inside=tree))


def test_a_tree_beside_one_of_the_same_beginning(tmp_path: Path) -> None:
    for name in ("tree", "tree-of-another"):
        (tmp_path / name).mkdir()
    (tmp_path / "tree-of-another/file").write_text("x")
    (tmp_path / "tree/link").symlink_to("../tree-of-another/file")
    with pytest.raises(reading.RefusedFileError):
        reading.read_bytes(tmp_path / "tree/link", inside=tmp_path / "tree")


def test_no_descriptor_stays_open(tmp_path: Path, pipe: Pipe) -> None:
    pipe(tmp_path / "pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        for path in (tmp_path, tmp_path / "pipe"):
            with pytest.raises(OSError):  # noqa: PT011
                reading.read_bytes(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("name", ["vllm_omni/diffusion/registry.py", "vllm_omni/x.py", "vllm_omni/_version.py"])
@pytest.mark.parametrize("kind", ["pipe", "device", "gigabytes", "link"])
def test_source_of_vllm_omni(
    tmp_path: Path, pipe: Pipe, scaffold_cli: Callable[..., Any], name: str, kind: str
) -> None:
    root = tmp_path / "source"
    for made in ("vllm_omni/__init__.py", "vllm_omni/diffusion/registry.py", "vllm_omni/x.py"):
        (root / made).parent.mkdir(parents=True, exist_ok=True)
        (root / made).write_text("_DIFFUSION_MODELS = {}\n")
    path = root / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        pipe(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "gigabytes":
        sparse(path)
    else:
        (tmp_path / "secret").write_text('__version__ = "1.2.3"\n')
        path.symlink_to(tmp_path / "secret")

    def read() -> None:
        source = locate(str(root))
        assert source.version is None
        if not name.endswith("_version.py"):
            with pytest.raises(ScaffoldError):
                source.read(name)

    in_little_memory(read)
    scaffold_cli("inspect", "bagel", "--vllm-omni", root).refusal(2)


@pytest.mark.parametrize("kind", ["pipe", "gigabytes", "link"])
def test_package_under_verify(tmp_path: Path, pipe: Pipe, kind: str) -> None:
    folder = tmp_path / "root/verl_omni/pipelines/mine"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (tmp_path / "outside.py").write_text(
        "from vllm_omni.diffusion.models.bagel.x import Pipeline\nclass Mine(Pipeline): pass\n"
    )
    if kind == "pipe":
        pipe(folder / "adapter.py")
        pipe(folder / "other.py")
    elif kind == "gigabytes":
        sparse(folder / "adapter.py")
    else:
        (folder / "adapter.py").symlink_to(tmp_path / "outside.py")
    in_little_memory(lambda: open_package(folder))
    assert open_package(folder).upstream is None


def test_package_under_check(tmp_path: Path, pipe: Pipe) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "secret.py").write_text("x = 1\n")
    (tmp_path / "tree/far.py").symlink_to(tmp_path / "secret.py")
    (tmp_path / "tree/zero.py").symlink_to("/dev/zero")
    pipe(tmp_path / "tree/pipe.py")
    sparse(tmp_path / "tree/huge.py")
    tree = DiskTree(tmp_path / "tree")
    for name in ("far.py", "zero.py", "pipe.py", "huge.py"):
        with pytest.raises(UnreadableError):
            tree.read(name)
    assert tree.read("none.py") is None


def test_checkout(tmp_path: Path, pipe: Pipe) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "outside.toml").write_text('[project]\ndependencies = ["vllm-omni==1.2.3"]\n')
    (tmp_path / "checkout/pyproject.toml").symlink_to(tmp_path / "outside.toml")
    pipe(tmp_path / "checkout/requirements.txt")
    assert vllm_omni_pin(tmp_path / "checkout") is None


def test_a_pipe_where_a_file_is_planned(tmp_path: Path, pipe: Pipe) -> None:
    pipe(tmp_path / "a.py")
    with pytest.raises(ScaffoldError, match="not a file"):
        states(tmp_path, ["a.py"])
    sparse(tmp_path / "b.py")
    with pytest.raises(ScaffoldError, match="larger than"):
        states(tmp_path, ["b.py"])


@pytest.mark.parametrize("kind", ["pipe", "gigabytes", "link"])
def test_journal(repository: Path, pipe: Pipe, kind: str) -> None:
    folder, name = journal_place(repository)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if kind == "pipe":
        pipe(folder / name)
    elif kind == "gigabytes":
        sparse(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    with pytest.raises(ScaffoldError) as caught:
        recover(repository)
    assert "\n" not in caught.value.line


def test_logs_of_gigabytes(tmp_path: Path) -> None:
    log = sparse(tmp_path / "log", b"\nfirst\n  the last\tword \n\n")

    def read() -> None:
        assert last_words(log) == ": the last word"
        assert last_line(log) == "the last word"
        kept = kept_log(log, "float32")
        assert kept.stat().st_size == KEPT_BYTES
        assert kept.read_bytes().endswith(b"word \n\n")
        kept.unlink()

    in_little_memory(read)
    assert last_words(tmp_path / "none") == ""


def test_a_copy_holds_regular_files_alone(tmp_path: Path, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, copy = tmp_path / "tree", tmp_path / "copy"
    (tree / "a/inner").mkdir(parents=True)
    (tree / "a/run.sh").write_text("run")
    (tree / "a/run.sh").chmod(0o555)
    (tree / "a/skipped.pyc").write_text("")
    (tree / "beside").write_text("beside")
    (tree / "a/inner/link").symlink_to("../../beside")
    (copy / "inner").mkdir(parents=True)
    (copy / "inner/link").write_text("older and longer")
    for _ in range(2):  # over itself too, though it may not be written to
        reading.copy_tree(tree / "a", copy, inside=tree, skip=("*.pyc",))
    found = {path.relative_to(copy).as_posix(): path for path in copy.rglob("*")}
    assert sorted(found) == ["inner", "inner/link", "run.sh"]
    assert not any(path.is_symlink() for path in found.values())
    assert found["inner/link"].read_text() == "beside"
    assert found["run.sh"].stat().st_mode & 0o777 == 0o755
    for make in (
        lambda path: pipe(path),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(tmp_path / "copy/run.sh"),
        lambda path: path.symlink_to("."),
        lambda path: path.symlink_to("/"),
        sparse,
    ):
        make(tree / "a/bad")
        with pytest.raises(reading.RefusedFileError) as caught:
            reading.copy_tree(tree / "a", copy, inside=tree)
        assert caught.value.filename == str(tree / "a/bad")
        (tree / "a/bad").unlink()
    monkeypatch.setattr(reading, "LARGEST_TREE", 8)
    with pytest.raises(reading.RefusedFileError, match="too large"):
        reading.copy_tree(tree / "a", copy, inside=tree)


def test_what_is_refused_is_one_line_wherever_it_stands(
    tmp_path: Path, scaffold_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise reading.RefusedFileError(22, "is not a regular file", "x\x1b[2J.py")

    monkeypatch.setattr("scaffold.verify.run.verify", refuse)
    (tmp_path / "__init__.py").write_text("")
    said = scaffold_cli("verify", tmp_path).refusal(2)
    assert "x\\x1b[2J.py is not a regular file" in said
