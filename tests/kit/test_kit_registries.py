"""Both registries: filing, looking up, and the attribute that registration adds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")


@pytest.fixture
def bases(kit: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The two registries, empty for one test."""
    from verl_omni.pipelines.model_base import DiffusionModelBase, VllmOmniPipelineBase

    monkeypatch.setattr(DiffusionModelBase, "_registry", {})
    monkeypatch.setattr(VllmOmniPipelineBase, "_registry", {})
    return SimpleNamespace(training=DiffusionModelBase, rollout=VllmOmniPipelineBase)


def test_training_adapters_are_found_by_architecture_and_algorithm(bases: Any) -> None:
    from verl_omni.workers.config import DiffusionModelConfig

    @bases.training.register("OmniFooForConditionalGeneration", algorithm="flow_grpo")
    class Foo(bases.training):
        pass

    config = DiffusionModelConfig(architecture="OmniFooForConditionalGeneration", algorithm="flow_grpo")
    assert bases.training.get_class(config) is Foo
    assert bases.training.get_class_by_name("OmniFooForConditionalGeneration", "flow_grpo") is Foo
    assert bases.training.peek_class("OmniFooForConditionalGeneration", "flow_grpo") is Foo
    assert bases.training.peek_class("OmniFooForConditionalGeneration", "dpo") is None
    with pytest.raises(NotImplementedError, match=r"dpo.*OmniFooForConditionalGeneration"):
        bases.training.get_class_by_name("OmniFooForConditionalGeneration", "dpo")


def test_external_library_registers_on_lookup(bases: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kit_external_adapter.py").write_text(
        "from verl_omni.pipelines.model_base import DiffusionModelBase as Base\n"
        "@Base.register('External', 'flow_grpo')\nclass Adapter(Base):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert bases.training.get_class_by_name("External", "flow_grpo", "kit_external_adapter").__name__ == "Adapter"


def test_rollout_adapters_are_marked_unless_their_own_body_says(bases: Any) -> None:
    class Upstream:
        supports_request_batch = True

    @bases.rollout.register("A", algorithm="flow_grpo")
    class Silent(Upstream):
        pass

    @bases.rollout.register("B", algorithm="flow_grpo")
    class Spoken(Upstream):
        supports_request_batch = True

    assert Silent.supports_request_batch is False
    assert Spoken.supports_request_batch is True
    assert bases.rollout.get_class("A", "flow_grpo") is Silent
    assert bases.rollout.get_class("A", "dpo") is None
    assert bases.rollout.get_pipeline_path("A", "flow_grpo") == f"{__name__}.{Silent.__qualname__}"
    assert bases.rollout.get_pipeline_path("C", "flow_grpo") is None


def test_defaults_of_the_optional_hooks(bases: Any) -> None:
    base = bases.training
    assert base.build_module(None, None) is None
    assert base.configure_train_mode(None) is None
    assert base.configure_trainable_params(None, None) is None
    assert base.validate_lora_config(None) is None
    assert base.forward(lambda **inputs: (inputs["x"], "rest"), None, {"x": 3}) == 3
    assert base.__abstractmethods__ == {
        "build_scheduler",
        "set_timesteps",
        "prepare_model_inputs",
        "forward_and_sample_previous_step",
    }


def test_configuration_is_set_once(kit: Path) -> None:
    from dataclasses import FrozenInstanceError

    from verl_omni.workers.config import DiffusionModelConfig, DiffusionPipelineConfig

    config = DiffusionModelConfig(path="/weights", pipeline=DiffusionPipelineConfig(height=64))
    assert (config.local_path, config.pipeline.height, config.pipeline["width"]) == ("/weights", 64, 512)
    assert config.pipeline.get("cfg_text_scale", 4.0) == 4.0
    config.pipeline.cfg_text_scale = 3.0  # undeclared settings of one model
    assert config.pipeline.get("cfg_text_scale", 4.0) == 3.0
    config.architecture = "OmniFoo"  # one of the few that verl-omni changes itself
    config.architecture = "OmniBar"
    for name in ("cfg_text_scale", "height"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(config.pipeline, name, 1)
    with pytest.raises(FrozenInstanceError, match="lora_rank"):
        config.lora_rank = 8
    assert "num_inference_steps" in dict(config.pipeline)
