"""A pipeline that is the model of its own loop: its class, cut down to what the method that predicts needs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scaffold.port.known_branches import decided
from scaffold.port.layer_lists import unset_arguments
from scaffold.port.names import Defined
from scaffold.port.own_model import OwnModel, own_model
from scaffold.source.modules import ModuleGraph
from scaffold.upstream import locate

MODULE = "vllm_omni.toy"
TEXT = """
import torch
from torch import nn
from transformers import PreTrainedModel, PretrainedConfig
from vllm.model_executor.models.utils import AutoWeightsLoader, WeightsMapper
from vllm.transformers_utils.config import get_config
from vllm_omni.diffusion.model_loader.diffusers_loader import DiffusersPipelineLoader


class Mode:
    DENSE = "dense"
    PAGED = "paged"


class ToyConfig(PretrainedConfig):
    pass


class ToyBase(PreTrainedModel):
    config_class = ToyConfig


class ToyPipeline(ToyBase):
    _encoder_modules = ["eyes"]

    def __init__(self, od_config):
        self.hf_config = get_config(od_config.model, trust_remote_code=True)
        self.hf_config.deep = True
        super().__init__(self.hf_config)
        self.od_config = od_config
        self.weights_sources = [
            DiffusersPipelineLoader.ComponentSource(
                model_or_path=od_config.model, subfolder=None, revision=od_config.revision, prefix=""
            )
        ]
        self.decoder = nn.Linear(self.hf_config.width, 4)
        self.eyes = nn.Linear(4, 4)
        self.voice = nn.Linear(4, 4)
        if self.hf_config.deep:
            self.more = nn.Linear(4, 4)
        self.post_init()

    def load_weights(self, weights):
        loader = AutoWeightsLoader(self)
        return loader.load_weights(weights, mapper=WeightsMapper(orig_to_new_prefix={"voice.": None}))

    def _paged(self):
        return getattr(self.od_config, "mode", Mode.DENSE) is Mode.PAGED

    def _see(self, x, image):
        return x + self.eyes(image)

    def _deepen(self, x):
        return self.more(x) if self.config.deep else x

    def predict(self, x, mode="speak", first=None, image=None, cache=None):
        pages = 0
        if first and self._paged():
            pages = self.count_pages()
        if pages:
            x = x[pages:]
        if mode == "speak":
            return self.voice(x)
        elif image is not None:
            x = self._see(x, image)
        with torch.no_grad():
            x = self.decoder(x, cache=cache)
        return self._deepen(x)
"""
CONSTANTS = {"mode": "draw", "cache": None}


@pytest.fixture
def cut(tmp_path: Path, request: pytest.FixtureRequest) -> OwnModel:
    folder = tmp_path / "vllm_omni"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "toy.py").write_text(getattr(request, "param", TEXT))
    found = own_model(ModuleGraph(locate(str(tmp_path))), Defined(MODULE, "ToyPipeline"), "predict", CONSTANTS)
    assert found is not None
    return found


def methods(cut: OwnModel) -> dict[str, str]:
    return {node.name: ast.unparse(node) for node in cut.tree.body if isinstance(node, ast.FunctionDef)}


def test_only_what_predicts_is_left(cut: OwnModel) -> None:
    found = methods(cut)
    assert set(found) == {"__init__", "predict", "_deepen"}
    assert ast.unparse(cut.tree.bases[0]) == "nn.Module"
    predict = found["predict"]
    assert "voice" not in predict
    assert "count_pages" not in predict, "nobody sets the engine's option"
    assert "pages:]" not in predict, "what is nothing then cuts nothing"
    assert "_see" not in predict
    assert "raise NotImplementedError" in predict, "another model's part raises where it is asked"
    assert "cache=None" in predict


def test_the_constructor_makes_what_is_read_and_no_more(cut: OwnModel) -> None:
    made = methods(cut)["__init__"]
    for part in ("self.decoder = ", "self.more = ", "self.config = self.hf_config", "super().__init__()"):
        assert part in made
    for part in ("eyes", "voice", "post_init", "trust_remote_code"):
        assert part not in made
    assert "self.hf_config.deep = True" in made, "a change of what is read is kept"
    assert "ToyConfig.from_dict(od_config.tf_model_config.to_dict())" in made
    assert "self.weights_sources = [(None, '', None)]" in made
    assert cut.builder.splitlines()[0] == "def build_denoiser(od_config):"


@pytest.mark.parametrize(
    ("cut", "asks"),
    [(TEXT, True), (TEXT.replace("getattr(self.od_config, ", "getattr(Mode, "), False)],
    indirect=["cut"],
    ids=["asked", "not asked"],
)
def test_what_is_built_has_the_configuration_that_the_whole_text_asks(cut: OwnModel, asks: bool) -> None:
    """The imported class has the branches, too, that are left out where the text is read."""
    assert "od_config" not in methods(cut)["predict"]
    assert ("    denoiser.od_config = od_config\n" in cut.builder) is asks


def test_lines_are_those_of_the_source(cut: OwnModel) -> None:
    node = next(n for n in cut.tree.body if isinstance(n, ast.FunctionDef) and n.name == "_deepen")
    assert TEXT.splitlines()[node.lineno - 1].strip() == "def _deepen(self, x):"


@pytest.mark.parametrize(
    "cut",
    [
        TEXT.replace('{"voice.": None}', '{"voice.": "mouth."}'),
        TEXT.replace("loader = AutoWeightsLoader(self)", "loader = OwnLoader(self)"),
        TEXT.replace("        return loader.load_weights(", "        return list(weights) or loader.load_weights("),
    ],
    indirect=True,
    ids=["renames", "another loader", "more than that"],
)
def test_weights_that_are_not_handed_on_by_name_are_left_to_a_person(cut: OwnModel) -> None:
    assert not cut.builder
    assert "predict" in methods(cut)


def test_an_argument_that_the_method_changes_decides_nothing() -> None:
    node = ast.parse(
        "def f(mode):\n    mode = mode or 'draw'\n    if mode == 'draw':\n        return 1\n    return 2"
    ).body[0]
    assert isinstance(node, ast.FunctionDef)
    before = ast.unparse(node)
    assert decided(node, {"mode": "draw"}, lambda name: None) == {}
    assert ast.unparse(node) == before


def test_arguments_that_never_have_a_value() -> None:
    text = """
def outer(self, cache=None, flags=None, mask=None):
    flags = flags or 1
    self.inner(cache=None, flags=flags, mask=mask, other=3)
    Made(cache=mask)

def inner(self, cache=None, mask=None):
    self.layer(kept=cache, mask=mask)
    return self.inner(cache=cache)
"""
    assert unset_arguments(ast.parse(text)) == {"cache", "kept"}
