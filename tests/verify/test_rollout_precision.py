"""What a run in half precision changes in a model's source, so that a CPU computes as the accelerator does."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from scaffold.verify.rollout.engine_side import precision

MODEL = """
from contextlib import nullcontext

import torch


def by_type(device):
    if device.type != "cuda":
        return nullcontext()
    return torch.autocast(device_type="cuda", dtype=torch.bfloat16)


def by_no_cpu(device):
    if device.type == "cpu":
        return nullcontext()
    return torch.autocast(device_type=device.type, dtype=torch.bfloat16)


def made_on_a_cpu(device):
    made = torch.zeros(1, device="cpu")
    return torch.autocast(device_type=made.device.type, dtype=torch.bfloat16)


class Model:
    @property
    def by_member(self):
        return torch.autocast("cuda", torch.bfloat16) if self.device.type in ("cuda", "npu") else nullcontext()

    def by_switch(self):
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda")


def name():
    return "cuda"
"""
EXACT = """
import torch


def exact(device):
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=False)
"""
CPU = torch.device("cpu")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Modules of a model's folder, as imported."""
    folder = tmp_path / "toy_upstream"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "model.py").write_text(MODEL)
    (folder / "exact.py").write_text(EXACT)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("toy_upstream", "toy_upstream.model", "toy_upstream.exact"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return SimpleNamespace(upstream_packages=["toy_upstream"], packages=[])


def opened(context: Any) -> bool:
    with context:
        return torch.is_autocast_enabled("cpu")


def contexts(modules: dict[str, ModuleType]) -> dict[str, bool]:
    model = modules["toy_upstream.model"].Model()
    model.device = CPU
    return {
        "by type": opened(modules["toy_upstream.model"].by_type(CPU)),
        "by no cpu": opened(modules["toy_upstream.model"].by_no_cpu(CPU)),
        "by member": opened(model.by_member),
        "by switch": opened(model.by_switch()),
        "exact": opened(modules["toy_upstream.exact"].exact(CPU)),
    }


@pytest.mark.parametrize(("dtype", "on"), [("bfloat16", True), ("float32", False)])
def test_autocast_that_asks_for_an_accelerator_is_on(model: Any, dtype: str, on: bool) -> None:
    precision.match(model, dtype)
    found = contexts({name: module for name, module in sys.modules.items() if name.startswith("toy_upstream")})
    assert found == {"by type": on, "by no cpu": on, "by member": on, "by switch": on, "exact": False}
    assert opened(sys.modules["toy_upstream.model"].made_on_a_cpu(CPU)) == on  # not compared with: it stays
    assert sys.modules["toy_upstream.model"].name() == "cuda"  # opens none: its text stays


def test_what_is_recomputed_exactly_has_no_autocast(model: Any) -> None:
    import toy_upstream.model

    found = SimpleNamespace(packages=["toy_upstream"])
    with precision.exact(found):  # type: ignore[arg-type]
        assert not opened(toy_upstream.model.Model.by_switch(SimpleNamespace(device=torch.device("cuda"))))
        assert toy_upstream.model.torch.bfloat16 is torch.float32
    assert toy_upstream.model.torch is torch
