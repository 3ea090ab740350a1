"""Configuration classes that a module registers with transformers are the port's own: it registers none itself."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scaffold.grade.needs import _asks_by_name
from tests.port.conftest import HEAD, PortText, execute

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


def built(port_text: PortText, words: dict[str, object], configs: str = REGISTERING) -> int:
    port = port_text(HEAD + PIPELINE, {CONFIGS: configs}, pipeline="Pipeline")
    module = execute(port)
    config = SimpleNamespace(model="folder", tf_model_config={"words": words})
    return int(getattr(module, port.builder)(config)[0].linear.in_features)


def test_a_type_that_the_module_registers_is_made_of_its_class(port_text: PortText) -> None:
    """transformers, which knows none of them, reads attributes of the class that no code names."""
    assert built(port_text, {"model_type": "small_words", "hidden_size": 8}) == 16
    assert not {"small", "small_words"} & set(transformers.CONFIG_MAPPING)


def test_another_type_is_transformers_own(port_text: PortText) -> None:
    text = REGISTERING.replace('"small_words", WordsConfig', '"other_words", WordsConfig')
    text = text.replace('"small_words"', '"other_words"')
    with pytest.raises(KeyError, match="small_words"):
        built(port_text, {"model_type": "small_words"}, text)
    with pytest.raises(AttributeError, match="width"):
        built(port_text, {"model_type": "bert", "hidden_size": 8}, text)


def test_nothing_is_left_to_register(port_text: PortText) -> None:
    port = port_text(HEAD + PIPELINE, {CONFIGS: REGISTERING}, pipeline="Pipeline")
    assert ".register(" not in port.source
    assert not _asks_by_name(port.source)


@pytest.mark.parametrize(
    "registers",
    [
        "",
        "AutoConfig.register(*ENTRIES)\n",
        "AutoConfig.register('small', make())\n",
        "AutoConfig.register('small', PretrainedConfig, exist_ok=True)\n",
    ],
)
def test_classes_that_cannot_be_told_leave_the_question(port_text: PortText, registers: str) -> None:
    text = REGISTERING[: REGISTERING.index("AutoConfig.register(")] + registers
    port = port_text(HEAD + PIPELINE, {CONFIGS: text}, pipeline="Pipeline")
    assert _asks_by_name(port.source)
