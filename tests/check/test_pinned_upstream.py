"""Names that a package imports are looked up in the vllm-omni that its checkout pins, where that is at hand."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.check.example import PACKAGE
from scaffold.upstream.exports import Exports
from scaffold.upstream.source import FolderSource

VERSION = "0.27.0rc1"
TOY = {
    "vllm_omni/__init__.py": "",
    "vllm_omni/diffusion/__init__.py": "",
    "vllm_omni/diffusion/data.py": "class DiffusionOutput: ...\nclass OmniDiffusionConfig: ...\n",
    "vllm_omni/diffusion/models/toy/pipeline_toy.py": "class ToyPipeline: ...\n",
    "vllm_omni/diffusion/worker/request_batch.py": "class DiffusionRequestBatch: ...\n",
}


@pytest.fixture
def checkout(tmp_path: Path, write_base: Callable[..., Path]) -> Path:
    return write_base(tmp_path / "checkout")


@pytest.fixture
def cached(empty_cache: Path) -> Callable[..., None]:
    """Return a function that puts a wheel into the cache."""

    def write(files: dict[str, str], version: str = VERSION) -> None:
        wheel = empty_cache / f"wheels/vllm_omni-{version}-py3-none-any.whl"
        wheel.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)

    return write


def test_what_the_pinned_version_lacks_is_found(
    checkout: Path, cached: Callable[..., None], scaffold_cli: Callable[..., Any]
) -> None:
    check = ("check", checkout / PACKAGE, "--select", "OSC531")
    # Nothing is fetched, and what is not at hand is not judged.
    scaffold_cli(*check).success()
    cached(TOY, "0.30.0")
    scaffold_cli(*check).success()
    cached(TOY)
    scaffold_cli(*check).success()
    cached({path: text for path, text in TOY.items() if "/toy/" not in path})
    found = scaffold_cli(*check)
    assert found.code == 1
    assert f"vllm-omni {VERSION} has no module vllm_omni.diffusion.models.toy.pipeline_toy" in found.out
    cached({**TOY, "vllm_omni/diffusion/data.py": "class DiffusionOutput: ...\n"})
    found = scaffold_cli(*check)
    assert f"vllm_omni.diffusion.data of vllm-omni {VERSION} has no OmniDiffusionConfig" in found.out
    assert "DiffusionOutput" not in found.out.splitlines()[0]


def test_damaged_wheel_is_not_at_hand(checkout: Path, empty_cache: Path, scaffold_cli: Callable[..., Any]) -> None:
    wheel = empty_cache / f"wheels/vllm_omni-{VERSION}-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(b"PK\3\4 cut off")
    scaffold_cli("check", checkout / PACKAGE, "--select", "OSC531").success()


@pytest.mark.parametrize(
    ("text", "name", "lacks"),
    [
        ("class Thing: ...", "Thing", False),
        ("class Thing: ...", "thing", True),
        ("def f():\n    thing = 1\n", "thing", True),
        ("class C:\n    thing = 1\n", "thing", True),
        ("xs = [thing for thing in range(3)]", "thing", True),
        ("if x:\n    import a.thing as thing\n", "thing", False),
        ("import thing.inner", "thing", False),
        ("try:\n    from a import thing\nexcept ImportError:\n    thing = None\n", "thing", False),
        ("first, (thing, *rest) = f()", "thing", False),
        ("with f() as thing:\n    pass\n", "thing", False),
        ("for thing in f():\n    pass\n", "thing", False),
        ("f(thing := 3)", "thing", False),
        ("def __getattr__(name): ...", "thing", False),
        ("globals()['thing'] = 1", "thing", False),
        ("from .other import *", "thing", False),
        ("from .other import *", "nothing", True),
        ("from somewhere import *", "thing", False),
        ("from . import *", "thing", True),
        ("def (", "thing", False),
        ("", "inner", False),
        ("", "*", False),
    ],
)
def test_names_of_a_module(tmp_path: Path, text: str, name: str, lacks: bool) -> None:
    files = {
        "vllm_omni/__init__.py": "",
        "vllm_omni/a/__init__.py": text,
        "vllm_omni/a/other.py": "thing = 1\n",
        "vllm_omni/a/inner/x.py": "",
    }
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    exports = Exports(FolderSource(tmp_path, None, "made up"))
    assert exports.lacks("vllm_omni.a", name) is lacks
    assert exports.lacks("vllm_omni.b", name)
    assert exports.lacks_module("vllm_omni.b")
    assert not exports.lacks_module("vllm_omni.a.inner")
