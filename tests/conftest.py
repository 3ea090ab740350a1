"""Fixtures that several rooms share."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from scaffold.render import render
from scaffold.resources import kit_root
from scaffold.spec import IntegrationSpec

REPOSITORY = Path(__file__).resolve().parents[1]
REFERENCE = REPOSITORY / "reference_bagel"


@pytest.fixture(scope="session")
def reference() -> Path:
    """Return the golden output."""
    return REFERENCE


@pytest.fixture(scope="session")
def reference_spec(reference: Path) -> IntegrationSpec:
    """Return the spec of the golden output."""
    path = next(reference.glob("verl_omni/pipelines/*/scaffold.toml"))
    return IntegrationSpec.from_toml(path.read_text(encoding="utf-8"))


@pytest.fixture
def write_tree() -> Callable[[Path, Mapping[str, Any]], Path]:
    """Return a function that writes rendered files below a folder."""

    def write(root: Path, files: Mapping[str, Any]) -> Path:
        for name, file in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if file.link_to is not None:
                path.symlink_to(file.link_to)
            else:
                path.write_text(file.content, encoding="utf-8")
        return root

    return write


def load_file(path: Path, name: str) -> types.ModuleType:
    """Import one file under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def training_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[IntegrationSpec], types.ModuleType]:
    """Return a function that renders a spec and imports its training module, on the kit's base class."""
    pytest.importorskip("torch")
    for name in ("verl_omni", "verl_omni.pipelines"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    base = "verl_omni.pipelines.non_diffusers_model_base"
    monkeypatch.setitem(sys.modules, base, load_file(kit_root() / (base.replace(".", "/") + ".py"), base))

    def build(spec: IntegrationSpec) -> types.ModuleType:
        names = spec.sections["names"]
        path = f"verl_omni/pipelines/{names['package']}/{names['model']}_model.py"
        target = tmp_path / f"{names['model']}_model.py"
        target.write_text(render(spec)[path].content, encoding="utf-8")
        return load_file(target, f"rendered_{names['model']}")

    return build


@pytest.fixture
def kit_environment() -> Callable[..., dict[str, str]]:
    """Return a function that gives the environment of a child process in which rendered trees meet the kit."""

    def make(*roots: Path, **extra: str) -> dict[str, str]:
        path = os.pathsep.join([str(kit_root()), *map(str, roots)])
        return {**os.environ, "PYTHONPATH": path, "LOCAL_RANK": "0", "PYTHONDONTWRITEBYTECODE": "1", **extra}

    return make
