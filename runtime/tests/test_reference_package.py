"""The CPU test of the golden package, with this runtime in place of the copy beside it."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REFERENCE = Path(__file__).resolve().parents[2] / "reference_bagel"
TEST = REFERENCE / "tests/pipelines/test_bagel_flow_grpo_on_cpu.py"
BESIDE = "verl_omni.pipelines.flow_grpo_runtime"
if not TEST.is_file():
    pytest.skip("the golden package is not here", allow_module_level=True)


class Own(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves the runtime beside packages as the one under test."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if f"{name}.".startswith(f"{BESIDE}.") else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return importlib.import_module(f"flow_grpo_runtime{spec.name.removeprefix(BESIDE)}")

    def exec_module(self, module: ModuleType) -> None:
        """It has run under its own name."""


def _loaded() -> dict[str, Any]:
    finder = Own()
    sys.meta_path.insert(0, finder)
    sys.path.append(str(REFERENCE))
    # The golden folder is compared file by file: bytecode has no place in it.
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        pipelines = importlib.import_module("verl_omni.pipelines")
        place = str(REFERENCE / "verl_omni/pipelines")
        if place not in pipelines.__path__:
            pipelines.__path__ = [*pipelines.__path__, place]
        spec = importlib.util.spec_from_file_location("reference_package_test", TEST)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
        sys.meta_path.remove(finder)
        sys.path.remove(str(REFERENCE))
    return vars(module)


NAMES = _loaded()
# Other tests take verl_omni's modules out of sys.modules again.
COMMON = sys.modules["verl_omni.pipelines.bagel_flow_grpo.common"]
globals().update({name: value for name, value in NAMES.items() if name.startswith("test_")})
globals().update({name: value for name, value in NAMES.items() if "fixture" in type(value).__name__.lower()})


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    """Keep the finder while a test imports more."""
    finder = Own()
    sys.meta_path.insert(0, finder)
    yield
    sys.meta_path.remove(finder)


def test_the_package_runs_on_this_runtime() -> None:
    assert COMMON.PackedGuidance.__module__ == "flow_grpo_runtime.guidance"
    assert sum(name.startswith("test_") for name in NAMES) > 5
