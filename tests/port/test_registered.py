"""Configuration classes that a module registers with transformers are there once it is executed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scaffold.grade.needs import _asks_by_name
from tests.port.conftest import HEAD, PortText, Run

transformers = pytest.importorskip("transformers")

CONFIGS = "vllm_omni/transformers_utils/configs/small.py"
REGISTERING = """
from transformers import AutoConfig, PretrainedConfig


class WordsConfig(PretrainedConfig):
    model_type = "small_words"
    attribute_map = {"width": "hidden_size"}

    def __init__(self, hidden_size=4, **kwargs):
        self.hidden_size = 2 * hidden_size
        super().__init__(**kwargs)


class SmallConfig(PretrainedConfig):
    model_type = "small"

    def __init__(self, words=None, **kwargs):
        self.words = AutoConfig.for_model(**words)
        super().__init__(**kwargs)


AutoConfig.register(SmallConfig.model_type, SmallConfig)
AutoConfig.register("small_words", WordsConfig)
"""
PIPELINE = """
from vllm_omni.diffusion.loader import Loader
from vllm_omni.transformers_utils.configs.small import SmallConfig


class Model(nn.Module):
    def __init__(self, size=1):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return self.linear(x)


class Pipeline(nn.Module):
    def __init__(self, *, od_config, prefix=""):
        super().__init__()
        self.weights_sources = [Loader.ComponentSource(model_or_path=od_config.model, subfolder=None, prefix="")]
        config = SmallConfig(**od_config.tf_model_config)
        self.transformer = Model(config.words.width)

    def load_weights(self, weights):
        return set()
"""


def built(port_text: PortText, run: Run, words: dict[str, object], configs: str = REGISTERING) -> int:
    port = port_text(HEAD + PIPELINE, {CONFIGS: configs}, pipeline="Pipeline")
    module = run(port)
    config = SimpleNamespace(model="folder", tf_model_config={"words": words})
    return int(getattr(module, port.builder)(config)[0].linear.in_features)


def test_a_type_that_the_module_registers_is_made_of_its_class(port_text: PortText, run: Run) -> None:
    assert built(port_text, run, {"model_type": "small_words", "hidden_size": 8}) == 16


def test_what_transformers_knows_already_stays(port_text: PortText, run: Run) -> None:
    """The engine registers the same types: its own classes must be those that it is given."""
    engines = type("Engines", (transformers.PretrainedConfig,), {"model_type": "words_of_the_engine", "width": 3})
    transformers.AutoConfig.register("words_of_the_engine", engines)
    text = REGISTERING.replace('"small_words"', '"words_of_the_engine"')
    assert built(port_text, run, {"model_type": "words_of_the_engine", "hidden_size": 8}, text) == 3
    assert type(transformers.AutoConfig.for_model("words_of_the_engine")) is engines


def test_another_type_is_transformers_own(port_text: PortText, run: Run) -> None:
    with pytest.raises(AttributeError, match="width"):
        built(port_text, run, {"model_type": "bert", "hidden_size": 8})


def test_a_builder_that_asks_for_no_type_needs_none(port_text: PortText) -> None:
    port = port_text(HEAD + PIPELINE, {CONFIGS: REGISTERING}, pipeline="Pipeline")
    assert not _asks_by_name(port.text)
