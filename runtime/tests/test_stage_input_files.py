"""What the stages before a pipeline made of a prompt: written, read, handed on, refused."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file

from flow_grpo_runtime import stage_inputs
from flow_grpo_runtime.stage_inputs import STAGE_INPUTS, StagedRollout, StageInputsRecorder
from flow_grpo_runtime.stage_recording import StagePlan, recording_config

INPUTS = {"tokens": [3, 4], "hidden": {"last": torch.randn(2, 3).bfloat16()}, "text": "a cat", "none": None}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = str(tmp_path / "folder" / "0.safetensors")
    stage_inputs.write_stage_inputs(path, INPUTS)
    return path


def request(path: str | None, name: str = "one") -> Any:
    extra_args = {} if path is None else {STAGE_INPUTS: path}
    params = SimpleNamespace(extra_args=extra_args)
    return SimpleNamespace(prompts=[{"prompt": "ids"}], sampling_params=params, request_id=name)


def test_what_is_written_is_read_again(file: str) -> None:
    found = stage_inputs.read_stage_inputs(file)
    assert torch.equal(found["hidden"].pop("last"), INPUTS["hidden"]["last"])  # type: ignore[index]
    assert found == {**INPUTS, "hidden": {}}


def test_what_no_such_file_holds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.1 is a set, which no file of stage inputs holds"):
        stage_inputs.write_stage_inputs(str(tmp_path / "a"), {"a": [1, {2}]})
    with pytest.raises(ValueError, match="is no file here: workers need the paths of the data"):
        stage_inputs.read_stage_inputs(str(tmp_path / "a"))
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=r"other.safetensors holds no stage_inputs"):
        stage_inputs.read_stage_inputs(str(tmp_path / "other.safetensors"))


def test_a_request_is_filled_in_once(file: str) -> None:
    asked = request(file)
    StagedRollout().prepare_rollout(asked)
    assert asked.prompts[0]["text"] == "a cat"
    assert asked.sampling_params.extra_args == {}
    StagedRollout().prepare_rollout(asked)  # the engine's own first look has done it by then
    StagedRollout().prepare_rollout(request(None, "dummy_req_id_0"))
    with pytest.raises(ValueError, match="the request names no stage_inputs"):
        StagedRollout().prepare_rollout(request(None))


def test_the_engines_first_look_finds_it_filled_in(file: str) -> None:
    module: Any = SimpleNamespace(make=lambda config: lambda asked: (config, asked.prompt["text"]))
    stage_inputs.prepare_with_stage_inputs(module, "make")
    asked = request(file)
    asked.prompt = asked.prompts[0]
    assert module.make("settings")(asked) == ("settings", "a cat")


def test_the_recorder_writes_what_a_pipeline_would_get(tmp_path: Path) -> None:
    recorder = StageInputsRecorder(od_config=None)
    assert recorder.load_weights([]) == set()
    asked = request(str(tmp_path / "made.safetensors"))
    assert recorder(asked).output.shape == (1, 3, 16, 16)
    assert stage_inputs.read_stage_inputs(str(tmp_path / "made.safetensors")) == {"prompt": "ids"}


@dataclass(frozen=True)
class Stage:
    stage_id: int
    input_sources: tuple[int, ...] = ()
    custom_process_input_func: Any = None
    requires_multimodal_data: bool = True


@dataclass(frozen=True)
class Topology:
    model_type: str
    stages: tuple[Stage, ...]
    hf_architectures: tuple[str, ...] = ("Toy",)
    default_deploy_config_name: str | None = "toy.yaml"
    stage_cli_aliases: dict[str, str] = field(default_factory=lambda: {"a": "b"})


def test_a_stage_is_registered_alone_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"toy": Topology("toy", (Stage(0), Stage(1, (0,), "take")))}
    module = ModuleType("vllm_omni.config.pipeline_registry")
    vars(module).update(
        OMNI_PIPELINES=known,
        resolve_pipeline_config=known.__getitem__,
        register_pipeline=lambda made: known.update({made.model_type: made}),
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for _ in range(2):
        stage_inputs.register_alone("toy", 1, "toy_alone")
    (stage,) = known["toy_alone"].stages
    assert stage == Stage(0, (), None, False)
    assert known["toy_alone"].hf_architectures == ()  # no checkpoint is taken for one of this topology


def test_the_recorder_stands_in_the_pipelines_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def resolve(path: str) -> dict[str, Any]:
        asked.append(path)
        return {"stages": [{"stage_id": 0}, {"stage_id": 1, "max_num_seqs": 8}]}

    config, package = ModuleType("vllm_omni.config.stage_config"), ModuleType("vllm_omni")
    vars(config)["resolve_deploy_yaml"], package.__file__ = resolve, str(tmp_path / "vllm_omni/__init__.py")
    monkeypatch.setitem(sys.modules, "vllm_omni", package)
    monkeypatch.setitem(sys.modules, config.__name__, config)
    plan = StagePlan("toy", 1, "toy.yaml", "ToyPipeline")
    made = yaml.safe_load(Path(recording_config(plan, "", str(tmp_path))).read_text())
    assert asked == [str(tmp_path / "vllm_omni/deploy/toy.yaml")]
    assert made["pipeline"] == "toy"
    assert made["stages"][0] == {"stage_id": 0}
    assert made["stages"][1]["max_num_seqs"] == 1
    place = made["stages"][1]["custom_pipeline_args"]["pipeline_class"]
    assert place == "flow_grpo_runtime.stage_inputs.StageInputsRecorder"
    assert plan.tokens(64, 64) is None
