"""Sizes that a pipeline's source writes out: replaced on both sides, where both ask for the same, and nothing else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from scaffold.verify.rollout.engine_side.tiny import constants
from scaffold.verify.rollout.engine_side.tiny.components import NoTinyModelError
from scaffold.verify.rollout.engine_side.tiny.denoiser import PortedModule

# Its sizes are arguments that nobody gives; what is not a size stays each side's own.
DENOISER = """
import torch


class {name}(torch.nn.Module):
    def __init__(self, dim=3840, n_layers=30, axes_dims=(32, 48, 48), text_feat_dim=2560, eps={eps}, quant=None):
        super().__init__()
        self.arguments = dict(dim=dim, n_layers=n_layers, axes_dims=axes_dims, text_feat_dim=text_feat_dim, eps=eps)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(dim, dim) for _ in range(n_layers))


def build_denoiser(od_config):
    return {name}({given}), [("transformer", "transformer.", None)]
"""
MODEL = """
from flow_grpo_runtime.checkpoint import DenoiserSource

SOURCE = DenoiserSource(build=None, prefix="transformer.")
"""
SMALL = {"dim": (3840, 96), "n_layers": (30, 2), "axes_dims": ((32, 48, 48), (8, 8, 8))}
GIVEN = {"text_feat_dim": 2560}

Write = Callable[..., Any]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write the real pipeline's class, and import it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("toy_engine", "toy_package", "toy_package.toy_denoiser", "toy_package.toy_model")

    def write(text: str) -> Any:
        (tmp_path / "toy_engine.py").write_text(text)
        return importlib.import_module("toy_engine")

    yield write
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def ported(engine: Write, tmp_path: Path) -> PortedModule:
    """A package whose builder gives its denoiser no size."""
    folder = tmp_path / "toy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "toy_denoiser.py").write_text(DENOISER.format(name="Toy", eps=1e-5, given=""))
    (folder / "toy_model.py").write_text(MODEL)
    facts = {"model": "toy", "entry": "Toy", "renames": [], "pipeline": "ToyPipeline", "attribute": "transformer"}
    return PortedModule("toy_package", {**facts, "module": "toy_engine", "class": "RealToy"})


@pytest.fixture
def checkpoint(ported: PortedModule, tmp_path: Path) -> Path:
    """The tiny checkpoint of that package."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    ported.write(folder, GIVEN, torch.float32)
    constants.write(folder, ported.classes, ported.replaced)
    return folder


def test_the_package_is_built_small_where_no_setting_says_its_sizes(ported: PortedModule, checkpoint: Path) -> None:
    assert ported.replaced == SMALL
    module, _ = ported.build(None)
    kept = {"text_feat_dim": 2560, "eps": 1e-5}
    assert module.arguments == {**{name: small for name, (_, small) in SMALL.items()}, **kept}
    assert list(constants.told(checkpoint).values()) == [
        "dim 96 for 3840, n_layers 2 for 30, axes_dims [8, 8, 8] for [32, 48, 48]"
    ]


def test_the_real_class_is_built_small_too_and_keeps_what_is_no_size(checkpoint: Path, engine: Write) -> None:
    real = engine(DENOISER.format(name="RealToy", eps=1e-6, given=""))
    for _ in range(2):  # once more where a request fails and the checkpoint is written anew
        constants.replace(checkpoint)
    made = real.RealToy(quant="none").arguments
    assert made == {"dim": 96, "n_layers": 2, "axes_dims": (8, 8, 8), "text_feat_dim": 2560, "eps": 1e-6}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (DENOISER.replace("dim=3840", "dim=3072"), "dim=3072, and by the package's builder with 3840"),
        (DENOISER.replace("n_layers=30", "depth=30").replace("n_layers", "depth"), "n_layers=None"),
        (DENOISER.replace("(32, 48, 48)", "(48, 48, 32)"), "axes_dims=(48, 48, 32)"),
    ],
)
def test_a_package_of_other_sizes_than_the_pipeline_is_seen(
    checkpoint: Path, engine: Write, source: str, said: str
) -> None:
    real = engine(source.format(name="RealToy", eps=1e-5, given=""))
    constants.replace(checkpoint)
    with pytest.raises(constants.OtherSizesError) as refused:
        real.RealToy()
    assert "toy_engine.RealToy is built with" in str(refused.value)
    assert said in str(refused.value)


def test_another_module_and_another_checkpoint_are_left_alone(tmp_path: Path, engine: Write) -> None:
    real = engine(DENOISER.format(name="RealToy", eps=1e-5, given="dim=8, n_layers=1"))
    constants.write(tmp_path, {"elsewhere": "RealToy"}, SMALL)
    constants.replace(tmp_path)
    constants.replace_in(tmp_path / "nothing", real)
    assert constants.told(tmp_path / "nothing") == {}
    assert real.build_denoiser(None)[0].arguments["dim"] == 8


@pytest.mark.parametrize("text", ["{", "[1]", '{"sizes": 3}', '{"sizes": {"dim": 3}}', '{"sizes": {"dim": [1]}}'])
def test_a_file_that_a_package_has_spoilt_ends_no_report(tmp_path: Path, text: str) -> None:
    (tmp_path / constants.FILE).write_text(text)
    assert list(constants.told(tmp_path).values()) == [f"{constants.FILE} cannot be read"]


def test_a_part_whose_size_is_no_argument_is_said(ported: PortedModule, tmp_path: Path) -> None:
    with pytest.raises(NoTinyModelError, match="constants of its source"):
        ported.write(tmp_path, {name: value for name, (value, _) in SMALL.items()}, torch.float32)


AREAS = """
def sides(area, ratio):
    return round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)


def prepared():
    return sides(1024 * 1024, 1.0)
"""


def test_an_area_of_the_source_is_small_once_and_said(engine: Write, tmp_path: Path) -> None:
    real = engine(AREAS)
    constants.write(tmp_path, {}, {}, areas={"toy_engine": "sides"})
    for _ in range(2):  # another process of the same run, or the same one again
        constants.replace(tmp_path)
    assert real.prepared() == (64, 64)
    assert real.sides(32 * 32, 1.0) == (32, 32)
    assert constants.told(tmp_path) == {constants.TITLE: "sides at most 4096 pixels"}


def test_what_stands_in_for_the_engine_computes_no_area(engine: Write, tmp_path: Path) -> None:
    engine(AREAS)
    constants.write(tmp_path, {}, {}, areas={"toy_engine": "other"})
    constants.replace(tmp_path)
    assert constants.modules(tmp_path) == ["toy_engine"]
