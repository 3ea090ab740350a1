"""What a failing request says about a tiny checkpoint, and what is changed for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from scaffold.verify.rollout.engine_side.tiny.components import Components
from scaffold.verify.rollout.engine_side.tiny.denoiser import NotGrownError, PortedModule

DENOISER = """
import torch


class Toy(torch.nn.Module):
    def __init__(self, hidden_size: int = 512, cond_dim: int = 0, pack: bool = False, prefix: str = "", quant=None):
        super().__init__()
        self.body = torch.nn.Linear(hidden_size, hidden_size)
        if cond_dim > 0:
            self.cond = torch.nn.Linear(cond_dim, hidden_size)
        if pack:
            self.packer = torch.nn.Linear(4, hidden_size)


def build_denoiser(od_config):
    raise NotImplementedError
"""


@pytest.fixture
def ported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PortedModule:
    """A package with a denoiser that has optional parts."""
    folder = tmp_path / "toy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "toy_denoiser.py").write_text(DENOISER)
    (folder / "toy_weights.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("toy_package", "toy_package.toy_denoiser", "toy_package.toy_weights"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return PortedModule("toy_package", {"model": "toy", "entry": "Toy", "renames": [], "pipeline": "ToyPipeline"})


def test_what_is_nothing_by_default_is_no_setting(ported: PortedModule) -> None:
    assert ported.settings({}) == {"hidden_size": 96, "cond_dim": 0, "pack": False}


def test_given_values_stand_as_they_are(ported: PortedModule) -> None:
    assert ported.settings({"hidden_size": 512, "more": [1]})["hidden_size"] == 512
    assert ported.settings({"more": [1]})["more"] == [1]


def test_an_argument_without_default_is_asked_for_by_name(ported: PortedModule) -> None:
    class Bare(ported.entry):  # type: ignore[name-defined,misc]
        def __init__(self, width: int) -> None: ...

    ported.entry = Bare
    with pytest.raises(NotGrownError, match=r"\[verify.denoiser\] width = "):
        ported.settings({})
    assert ported.settings({"width": 8}) == {"width": 8}


@pytest.mark.parametrize(("part", "fitted"), [("cond", {"cond_dim": 16}), ("packer", {"pack": True}), ("body", {})])
def test_a_part_that_is_missing_is_switched_on(ported: PortedModule, part: str, fitted: dict[str, Any]) -> None:
    error = AttributeError(f"'Toy' object has no attribute '{part}'")
    assert ported.fit(error, 16) is bool(fitted)
    assert ported.fitted == fitted
    assert not ported.fit(error, 16)  # once is enough; it fails for another reason then
    assert not ported.fit(AttributeError("'Other' object has no attribute 'cond'"), 16)


def test_encoders_of_more_layers_are_written_anew(tmp_path: Path) -> None:
    found = Components(tmp_path, [], {}, torch.float32)
    for name in ("encoder", "vae"):
        (tmp_path / name).mkdir()
    found.written = {tmp_path / "encoder": "encoder", tmp_path / "vae": "AutoencoderKL"}
    mismatch = "The size of tensor a ({}) must match the size of tensor b ({}) at non-singleton dimension 1"
    assert not found.fit(RuntimeError(mismatch.format(7, 25)))  # neither is the number of states
    assert not found.fit(RuntimeError("something else"))
    assert (tmp_path / "encoder").is_dir()
    assert found.fit(RuntimeError(mismatch.format(3, 25)))
    assert found.scale.layers == 24
    assert not (tmp_path / "encoder").exists()
    assert (tmp_path / "vae").is_dir()
