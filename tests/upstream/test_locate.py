"""Finding vllm-omni's source: versions, wheels, folders, and what goes wrong."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError
from scaffold.upstream import DEFAULT_VERSION, cache_root, locate
from scaffold.upstream.pip import nearest_versions
from scaffold.upstream.source import MAX_FILE_BYTES


def wheel(path: Path, files: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


FILES = {"vllm_omni/__init__.py": "", "vllm_omni/a/b.py": "x = 1\n"}


def test_folder(tmp_path: Path) -> None:
    source = locate(str(tree(tmp_path / "checkout", FILES)))
    assert source.read("vllm_omni/a/b.py") == "x = 1\n"
    assert source.exists("vllm_omni/a/b.py")
    assert not source.exists("vllm_omni/a/c.py")
    assert source.files("vllm_omni/a") == ["vllm_omni/a/b.py"]
    assert source.version is None
    assert source.label == "checkout"
    assert source.tree("vllm_omni/a/b.py") is source.tree("vllm_omni/a/b.py")


def test_folder_version_beside_the_package(tmp_path: Path) -> None:
    root = tree(tmp_path, {**FILES, "vllm_omni-9.1.0.dist-info/METADATA": ""})
    assert locate(str(root)).version == "9.1.0"


def test_wheel_is_read_in_place(tmp_path: Path) -> None:
    path = wheel(tmp_path / "vllm_omni-0.99.0-py3-none-any.whl", FILES)
    source = locate(str(path))
    assert source.version == "0.99.0"
    assert source.read("vllm_omni/a/b.py") == "x = 1\n"
    assert source.files() == ["vllm_omni/__init__.py", "vllm_omni/a/b.py"]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_label_holds_no_path_of_this_machine(tmp_path: Path) -> None:
    path = wheel(tmp_path / "vllm_omni-0.99.0-py3-none-any.whl", FILES)
    assert str(tmp_path) not in locate(str(path)).label
    assert str(tmp_path) not in locate(str(tree(tmp_path / "c", FILES))).label


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: str(tree(root, {"other/x.py": ""})), "holds no vllm_omni/"),
        (lambda root: str(root / "missing"), "no such"),
        (lambda root: str(root / "gone-1.0-py3-none-any.whl"), "no such wheel"),
        (lambda root: str(tree(root, {"notes.txt": "x"}) / "notes.txt"), "is not a wheel"),
        (lambda root: str(tree(root, {"a-1-py3-none-any.whl": "x"}) / "a-1-py3-none-any.whl"), "not a readable wheel"),
        (lambda root: str(wheel(root / "a-1-py3-none-any.whl", {"b.py": ""})), "holds no vllm_omni/"),
        (lambda root: "  ", "empty"),
        (lambda root: "not a version", "no such version, wheel or folder"),
    ],
)
def test_unusable_selectors(tmp_path: Path, make, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ScaffoldError) as caught:
        locate(make(tmp_path))
    assert words in caught.value.line
    assert "\n" not in caught.value.line


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    root = tree(tmp_path, {**FILES, "vllm_omni/broken.py": "def (:\n"})
    (root / "vllm_omni/latin.py").write_bytes(b"x = '\xe9'\n")
    (root / "vllm_omni/huge.py").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    source = locate(str(root))
    for name, words in (
        ("broken", "not valid Python"),
        ("latin", "not UTF-8"),
        ("huge", "larger than"),
        ("no", "has no"),
    ):
        with pytest.raises(ScaffoldError, match=words):
            source.tree(f"vllm_omni/{name}.py")
    for path in ("../secret", "/etc/passwd", "vllm_omni/../../x", ""):
        with pytest.raises(ScaffoldError):
            source.read(path)


def test_wheel_member_larger_than_it_claims(tmp_path: Path) -> None:
    path = wheel(tmp_path / "vllm_omni-1.0-py3-none-any.whl", {**FILES, "vllm_omni/big.py": "#" * (MAX_FILE_BYTES + 9)})
    with pytest.raises(ScaffoldError, match="larger than"):
        locate(str(path)).read("vllm_omni/big.py")


def test_damaged_member(tmp_path: Path) -> None:
    path = tmp_path / "vllm_omni-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
        archive.writestr("vllm_omni/c.py", "abc = 1\n" * 400)
    data = bytearray(path.read_bytes())
    at = data.find(b"vllm_omni/c.py") + len("vllm_omni/c.py")
    data[at : at + 8] = b"\xff" * 8
    path.write_bytes(bytes(data))
    with pytest.raises(ScaffoldError, match=r"c\.py"):
        locate(str(path)).read("vllm_omni/c.py")


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path / "kept"))
    assert cache_root() == tmp_path / "kept"
    monkeypatch.delenv("OMNI_SCAFFOLD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform.startswith("linux"):
        assert cache_root() == tmp_path / "xdg" / "omni-scaffold"


class Pip:
    """Stands in for the child process that downloads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cache: Path, output: str = "", code: int = 0) -> None:
        self.calls: list[list[str]] = []
        self.output, self.code = output, code
        monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(cache))
        monkeypatch.setattr(subprocess, "run", self)

    def __call__(self, command: list[str], **kwargs: object) -> subprocess.CompletedProcess[bytes]:
        self.calls.append(command)
        if self.code == 0:
            folder = Path(command[command.index("--dest") + 1])
            version = next(word for word in command if "==" in word).partition("==")[2]
            wheel(folder / f"vllm_omni-{version}-py3-none-any.whl", FILES)
        return subprocess.CompletedProcess(command, self.code, b"", self.output.encode())


def test_version_is_fetched_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip = Pip(monkeypatch, tmp_path)
    assert locate("0.98.0").version == "0.98.0"
    assert locate("v0.98.0").version == "0.98.0"
    assert len(pip.calls) == 1
    assert "--no-deps" in pip.calls[0]
    assert "--only-binary=:all:" in pip.calls[0]
    name = "vllm_omni-0.98.0-py3-none-any.whl"
    assert sorted(p.name for p in (tmp_path / "wheels").iterdir()) == [name, f"{name}.sha256"]


def test_without_selector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Pip(monkeypatch, tmp_path)
    assert locate(None, checkout_pin="0.97.0").version == "0.97.0"
    assert locate("0.98.0", checkout_pin="0.97.0").version == "0.98.0"

    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert locate(None).version == DEFAULT_VERSION


def test_installed_distribution_is_read_without_importing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = tree(tmp_path, {**FILES, "vllm_omni/__init__.py": "raise RuntimeError"})
    info = root / "vllm_omni-8.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-omni\nVersion: 8.0.0\n")
    monkeypatch.syspath_prepend(str(root))
    source = locate(None)
    assert (source.version, source.label) == ("8.0.0", "8.0.0 (installed)")
    assert source.read("vllm_omni/a/b.py") == "x = 1\n"


def test_slow_fetch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path))

    def run(command: list[str], **kwargs: object) -> None:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ScaffoldError, match="took longer"):
        locate("0.98.0")


def test_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path / "file"))
    with pytest.raises(ScaffoldError, match="OMNI_SCAFFOLD_CACHE"):
        locate("0.98.0")


def test_nearest_versions() -> None:
    known = ["0.22.0", "0.24.0", "0.27.0rc1", "0.30.0"]
    assert nearest_versions("0.25.0", known) == ["0.24.0", "0.27.0rc1", "0.22.0"]
    assert nearest_versions("9.9.9", known) == ["0.30.0", "0.27.0rc1", "0.24.0"]
    assert nearest_versions("0.1.0", known) == ["0.22.0", "0.24.0", "0.27.0rc1"]
    assert nearest_versions("1", []) == []
