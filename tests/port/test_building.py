"""How a pipeline builds its denoiser becomes a function; what cannot be followed does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.port.conftest import HEAD, PortText, execute

MODEL = (
    HEAD
    + """
import json
import os
from vllm_omni.diffusion.loader import Loader
from vllm_omni.quantization import resolve_quant
from vllm_omni.diffusion.local import get_local_device


class Model(nn.Module):
    def __init__(self, size=1, depth=2, quant_config=None, prefix=""):
        super().__init__()
        self.size, self.depth = size, depth
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return self.linear(x)
"""
)
PIPELINE = """

def sizes(config, extra):
    return {"size": config.get("size", 7) + extra}


class Pipeline(nn.Module):
    EXTRA = 1

    def __init__(self, *, od_config, prefix=""):
        super().__init__()
        self.od_config = od_config
        self.device = get_local_device()
        quant = resolve_quant(od_config.quantization_config)
        self.weights_sources = [Loader.ComponentSource(model_or_path=od_config.model, subfolder="dit",
                                                       revision=None, prefix="transformer.")]
        self.setup()
        self.transformer = self.transformer.to(self.device).eval()

    def setup(self):
        if self.od_config.model is None:
            return
        extra = 2
        extra += 1
        config = sizes(self.od_config.tf_model_config, extra)
        config.update(depth=5)
        self.transformer = Model(**config, quant_config=self.od_config.quantization_config).to(self.device)

    def load_weights(self, weights):
        return set()
"""


def build(port_text: PortText, pipeline: str) -> object:
    port = port_text(MODEL + pipeline, pipeline="Pipeline")
    assert port.builder == "build_denoiser", "not followed"
    config = SimpleNamespace(model="folder", tf_model_config={"size": 4}, quantization_config="none")
    return getattr(execute(port), port.builder)(config)


def test_what_the_constructor_does_is_done(port_text: PortText) -> None:
    model, sources = build(port_text, PIPELINE)  # type: ignore[misc]
    assert (model.size, model.depth) == (7, 5)
    assert sources == [("dit", "transformer.", None)]


def test_names_of_placement_and_quantisation_are_gone(port_text: PortText) -> None:
    port = port_text(MODEL + PIPELINE, pipeline="Pipeline")
    assert not port.gaps
    for gone in ("resolve_quant", "get_local_device", "ComponentSource"):
        assert gone not in port.source


def test_a_folder_of_diffusers(port_text: PortText) -> None:
    text = MODEL.replace("class Model(nn.Module):", "class Model(ModelMixin, ConfigMixin):")
    text = text.replace("import json", "import json\nfrom diffusers import ConfigMixin, ModelMixin")
    pipeline = PIPELINE.replace(
        "self.transformer = Model(**config, quant_config=self.od_config.quantization_config).to(self.device)",
        'self.transformer = Model.from_pretrained(self.od_config.model, subfolder="dit", torch_dtype=None).to("cpu")',
    )
    pipeline = (
        pipeline[: pipeline.index("        self.weights_sources")]
        + "        self.setup()\n\n"
        + (pipeline[pipeline.index("    def setup") :])
    )
    port = port_text(text + pipeline, pipeline="Pipeline")
    assert 'Model.from_config(Model.load_config(od_config.model, subfolder="dit"))' in port.source
    assert 'weights_sources = [("dit", "transformer.", None)]' in port.source
    assert not port.streamed


def test_weights_that_the_pipeline_reads(port_text: PortText) -> None:
    read = "        self.transformer.load_state_dict(read(od_config.model), strict=True)\n"
    pipeline = PIPELINE.replace("        self.setup()\n", "        self.setup()\n" + read)
    start, end = pipeline.index("        self.weights_sources"), pipeline.index("        self.setup()\n")
    pipeline = pipeline[:start] + pipeline[end:] + "\n\ndef read(folder):\n    return {'linear.weight': folder}\n"
    model, weights = build(port_text, pipeline)  # type: ignore[misc]
    assert model.depth == 5
    assert weights == {"linear.weight": "folder"}


def test_the_denoisers_own_loader_comes_along(port_text: PortText) -> None:
    loader = """
    def load_weights(self, weights):
        params = dict(self.named_parameters())
        for name, weight in weights:
            load = getattr(params[name.removeprefix("old.")], "weight_loader", default_weight_loader)
            load(params[name.removeprefix("old.")], weight)
        return set()
"""
    head = "from vllm.model_executor.model_loader.weight_utils import default_weight_loader\n"
    port = port_text(head + MODEL + loader + PIPELINE, pipeline="Pipeline")
    assert port.loader
    assert port.streamed
    assert "def load_weights" in port.source
    assert "def load_weights" not in port_text(head + MODEL + loader + PIPELINE).source


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("extra = 2", "extra = self.od_config.tensor_parallel"),
        ("extra = 2", "extra = self.unknown"),
        ("extra = 2", "extra, other = 2, 3"),
        ("config.update(depth=5)", "for key in ('depth',):\n            config = {**config, key: 5}"),
        ("super().__init__()\n        self.od_config", "super().__init__()\n        self.od_config, self.x"),
        ("        self.setup()\n", "        self.setup()\n        self.transformer.grow()\n"),
        ("        self.setup()\n", "        self.setup()\n        patch(self.transformer)\n"),
        ("        self.setup()\n", "        self.setup()\n        self.transformer.linear = nn.Linear(9, 9)\n"),
        ("sizes(self.od_config.tf_model_config, extra)", "missing(self.od_config.tf_model_config, extra)"),
        ("def setup(self):", "def setup(self, given):"),
    ],
)
def test_what_is_not_understood_is_left_to_a_person(port_text: PortText, old: str, new: str) -> None:
    assert old in PIPELINE
    text = PIPELINE.replace(old, new)
    if "given" in new:
        text = text.replace("extra = 2", "extra = given")
    if "self.x" in new:
        text = text.replace("self.od_config, self.x = od_config", "self.od_config, self.x = od_config, 1")
    port = port_text(MODEL + text, pipeline="Pipeline")
    assert port.builder == ""
    assert "od_config" not in port.source


def test_an_early_return_leaves_out_the_rest(port_text: PortText) -> None:
    early = "        if config is None:\n            return\n        config.update(depth=5)"
    source = port_text(MODEL + PIPELINE.replace("        config.update(depth=5)", early), pipeline="Pipeline").source
    assert "if setup_config is not None:\n" in source
    assert "if od_config.model is not None:\n" in source


def test_what_the_engine_alone_knows_leaves_the_rest_of_the_port(port_text: PortText) -> None:
    pipeline = PIPELINE.replace("extra = 2", "extra = resolve_quant(1)")
    port = port_text(MODEL + pipeline, pipeline="Pipeline")
    assert port.builder == ""
    assert not port.gaps
    assert "resolve_quant" not in port.source
