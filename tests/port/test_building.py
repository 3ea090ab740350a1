"""How a pipeline builds its denoiser becomes a function; what cannot be followed does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.port.conftest import HEAD, PortText, Run

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


def build(port_text: PortText, run: Run, pipeline: str) -> object:
    port = port_text(MODEL + pipeline, pipeline="Pipeline")
    assert port.builder == "build_denoiser", "not followed"
    config = SimpleNamespace(model="folder", tf_model_config={"size": 4}, quantization_config="none")
    return getattr(run(port), port.builder)(config)


def test_what_the_constructor_does_is_done(port_text: PortText, run: Run) -> None:
    model, sources = build(port_text, run, PIPELINE)  # type: ignore[misc]
    assert (model.size, model.depth) == (7, 5)
    assert sources == [("dit", "transformer.", None)]


def test_names_of_placement_and_quantisation_are_gone(port_text: PortText) -> None:
    port = port_text(MODEL + PIPELINE, pipeline="Pipeline")
    assert not port.gaps
    for gone in ("resolve_quant", "get_local_device", "ComponentSource"):
        assert gone not in port.text


def test_a_denoiser_that_no_configuration_is_asked_for_has_constant_sizes(port_text: PortText) -> None:
    assert not port_text(MODEL + PIPELINE, pipeline="Pipeline").constant
    start, end = PIPELINE.index("        if self.od_config.model"), PIPELINE.index("        self.transformer = Model(")
    pipeline = PIPELINE[:start] + PIPELINE[end:].replace("**config, ", "")
    port = port_text(MODEL + pipeline, pipeline="Pipeline")
    assert port.builder
    assert port.constant
    assert not port_text(MODEL).constant  # what builds it is unknown


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
    assert "Model.from_config(Model.load_config(od_config.model, subfolder='dit'))" in port.text
    assert "weights_sources = [('dit', 'transformer.', None)]" in port.text
    assert not port.streamed


def test_weights_that_the_pipeline_reads(port_text: PortText, run: Run) -> None:
    read = "        self.transformer.load_state_dict(read(od_config.model), strict=True)\n"
    pipeline = PIPELINE.replace("        self.setup()\n", "        self.setup()\n" + read)
    start, end = pipeline.index("        self.weights_sources"), pipeline.index("        self.setup()\n")
    pipeline = pipeline[:start] + pipeline[end:] + "\n\ndef read(folder):\n    return {'linear.weight': folder}\n"
    model, weights = build(port_text, run, pipeline)  # type: ignore[misc]
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
    assert port.loader_lines[0][0] == "vllm_omni/diffusion/models/small/first.py"
    assert not port_text(head + MODEL + loader + PIPELINE).loader


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("extra = 2", "extra = self.od_config.tensor_parallel"),
        ("extra = 2", "extra = self.unknown"),
        ("extra = 2", "extra, *other = 2, 3"),
        ("config.update(depth=5)", "for key in ('depth',):\n            config = {**config, key: 5}"),
        ("super().__init__()\n        self.od_config", "super().__init__()\n        self.od_config, *self.x"),
        ("        self.setup()\n", "        self.setup()\n        self.transformer.grow()\n"),
        ("        self.setup()\n", "        self.setup()\n        patch(self.transformer)\n"),
        ("        self.setup()\n", "        self.setup()\n        self.transformer.linear.grow(9)\n"),
        (
            "        self.setup()\n",
            "        self.setup()\n        for p in self.transformer.parts():\n            p.x = 1\n",
        ),
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
        text = text.replace("self.od_config, *self.x = od_config", "self.od_config, *self.x = od_config, 1")
    port = port_text(MODEL + text, pipeline="Pipeline")
    assert port.builder == ""
    assert "od_config" not in port.text


def test_an_early_return_leaves_out_the_rest(port_text: PortText) -> None:
    early = "        if config is None:\n            return\n        config.update(depth=5)"
    source = port_text(MODEL + PIPELINE.replace("        config.update(depth=5)", early), pipeline="Pipeline").text
    assert "if setup_config is not None:\n" in source
    assert "if od_config.model is not None:\n" in source


def test_what_the_engine_alone_knows_leaves_the_rest_of_the_port(port_text: PortText) -> None:
    pipeline = PIPELINE.replace("extra = 2", "extra = resolve_quant(1)")
    port = port_text(MODEL + pipeline, pipeline="Pipeline")
    assert port.builder == ""
    assert port.unbuilt == ("", "`resolve_quant` is the engine's and has no counterpart")
    assert "resolve_quant" not in port.text


BY_THE_WAY = """
def cast(model, dtype):
    for name, value in model.named_parameters():
        value.data = value.data.to(dtype)


class Pipeline(nn.Module):
    def __init__(self, *, od_config, prefix=""):
        super().__init__()
        self.od_config = od_config
        self.folder = self.where(od_config.model)
        self.config = self._read(od_config)
        self.transformer, self.other = self._make(extra=1)

    @staticmethod
    def where(model):
        if os.path.isdir(model):
            return model
        from vllm_omni.files import fetch

        return fetch(model).download()

    def _read(self, od_config):
        if self.folder is None:
            return {}
        return {"size": self._size(3)}

    def _size(self, size):
        return size + len(self.folder)

    def _make(self, extra):
        with set_current_vllm_config(self.od_config):
            model = Model(**self.config, depth=extra)
            other = nn.Linear(1, 1)
        cast(model, torch.float64)
        model.linear = nn.Linear(extra, 2)
        try:
            self._fill(model)
        except OSError as error:
            raise ValueError("no file") from error
        return model.eval(), other

    def _fill(self, module):
        weights = load_file(os.path.join(self.folder, "weights.safetensors"))
        module.load_state_dict({name.lower(): tensor for name, tensor in weights.items()})

    def load_weights(self, weights):
        return None
"""
READS = "from vllm.config import set_current_vllm_config\nfrom safetensors.torch import load_file\n"


def test_methods_by_the_way_are_written_out(port_text: PortText, run: Run) -> None:
    port = port_text(READS + MODEL + BY_THE_WAY, pipeline="Pipeline")
    assert (port.reads, port.handed, port.streamed, port.file) == (True, False, False, False)
    asked = []
    config = SimpleNamespace(model="/", load_file=lambda path: asked.append(path) or {"Linear.WEIGHT": path})
    model, weights = getattr(run(port), port.builder)(config)
    assert (model.size, model.depth) == (4, 1)
    assert (model.linear.out_features, model.linear.weight.dtype.itemsize) == (2, 4)  # it is made after the cast
    assert weights == {"linear.weight": "/weights.safetensors"}
    assert asked == ["/weights.safetensors"]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        getattr(run(port), port.builder)(SimpleNamespace(model="nowhere"))


def test_a_loader_that_builds_the_denoiser_from_a_file(port_text: PortText, run: Run) -> None:
    start, end = BY_THE_WAY.index("        self.folder ="), BY_THE_WAY.index("    @staticmethod")
    text = BY_THE_WAY[:start] + "        self.weights_sources = []\n\n" + BY_THE_WAY[end:]
    text = text.replace("Model(**self.config, depth", "Model(depth")
    text = text.replace('os.path.join(self.folder, "weights.safetensors")', "self.od_config.model")
    loads = "        self.seen = dict(weights)\n        made, _ = self._make(3)\n        self.transformer = made\n"
    text = text.replace("        return None\n", f"{loads}        return set(self.seen)\n")
    port = port_text(READS + MODEL + text, pipeline="Pipeline")
    assert port.reads
    assert port.file
    config = SimpleNamespace(model="a file", load_file=lambda path: {"A": path})
    model, weights = getattr(run(port), port.builder)(config)
    assert (model.depth, weights) == (3, {"a": "a file"})


def test_sources_that_the_class_has_are_asked_for(port_text: PortText) -> None:
    start, end = BY_THE_WAY.index("        self.folder ="), BY_THE_WAY.index("    @staticmethod")
    text = BY_THE_WAY[:start] + "        self.seen = 1\n\n" + BY_THE_WAY[end:]
    text = text.replace("Model(**self.config, depth", "Model(depth").replace("self.folder", "self.od_config.model")
    text = text.replace("        return None\n", "        self.transformer, _ = self._make(3)\n")
    assert port_text(READS + MODEL + text, pipeline="Pipeline").builder
    for line in ("weights_sources = ('a source',)", "@property\n    def weights_sources(self):\n        return ('a',)"):
        with_sources = text.replace("    def _make", f"    {line}\n\n    def _make")
        assert port_text(READS + MODEL + with_sources, pipeline="Pipeline").builder == ""


def test_weights_that_the_denoisers_own_loader_is_handed(port_text: PortText, run: Run) -> None:
    loader = """
    def load_weights(self, weights):
        return {name for name, _ in weights}
"""
    text = BY_THE_WAY.replace("module.load_state_dict({", "module.load_weights({").replace(
        "items()})", "items()}.items())"
    )
    port = port_text(READS + MODEL + loader + text, pipeline="Pipeline")
    assert (port.reads, port.handed, port.loader, port.streamed) == (True, True, True, False)
    config = SimpleNamespace(model="/", load_file=lambda path: {"A": path})
    _, weights = getattr(run(port), port.builder)(config)
    assert weights == [("a", "/weights.safetensors")]
    assert not port_text(READS + MODEL + text, pipeline="Pipeline").builder  # it has no such loader


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value.data = value.data.to(dtype)", "value.data = value.data * 2"),
        ("value.data = value.data.to(dtype)", "model.extra = 1"),
        ("value.data = value.data.to(dtype)", "value = fuse(model)"),
        ("value.data = value.data.to(dtype)", "found = model.fuse()"),
        ("value.data = value.data.to(dtype)", "setattr(model, name, value)"),
        ("        self.config = self._read(od_config)", "        self.config = {}\n        self.late(od_config)"),
        ("extra, 2)", "extra, (lambda other: 2)(1))"),
        ("set_current_vllm_config(self.od_config)", "torch.inference_mode()"),
        (
            "        return model.eval(), other",
            "        if extra:\n            return other, model\n        return model, other",
        ),
        ("        self._fill(model)", "        self._fill(model)\n            self._fill(model)"),
        ("def _fill(self, module)", "def _fill(self, module, **options)"),
        ('raise ValueError("no file") from error', "model.linear = None"),
        ("        return size + len(self.folder)", "        self.size = size\n        return size"),
        (
            "    def load_weights(self, weights):",
            "    def late(self):\n        self.transformer.linear = None\n\n    def load_weights(self, weights):",
        ),
        ("        module.load_state", "        module = module.linear\n        module.load_state"),
    ],
)
def test_what_is_not_understood_by_the_way(port_text: PortText, old: str, new: str) -> None:
    assert old in BY_THE_WAY
    text = BY_THE_WAY.replace(old, new)
    if "self.late(" in new:
        text += "\n    def late(self, od_config):\n        self.config = {'size': 1}\n"
    port = port_text(READS + MODEL + text, pipeline="Pipeline")
    assert port.builder == ""
    assert "od_config" not in port.text
