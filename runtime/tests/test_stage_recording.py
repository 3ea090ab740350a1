"""Stages before a pipeline, run once for each row that names no file."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from flow_grpo_runtime import stage_recording
from flow_grpo_runtime.stage_recording import StagePlan, record_stage_inputs

PLAN = StagePlan("toy_stages", 1, "toy.yaml", "ToyPipeline", grid=(16, 1, 1))


class Drawing:
    """Sampling parameters of a stage that draws tokens."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens

    def clone(self) -> Drawing:
        return Drawing(self.max_tokens)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Prompts and numbers of tokens that vllm-omni is asked for; it writes the file that the last stage is to write."""
    found: list[Any] = []
    default = Drawing(16)

    class Omni:
        def __init__(self, **_: Any) -> None:
            self.default_sampling_params_list = [default, None]

        def generate(self, prompt: str, params: list[Any]) -> None:
            found.append((prompt, params[0].max_tokens, default.max_tokens))
            if prompt != "nothing":
                Path(params[1].extra_args["stage_inputs"]).touch()

        def close(self) -> None:
            found.append("closed")

    modules: dict[str, dict[str, Any]] = {
        "vllm_omni.entrypoints.omni": {"Omni": Omni},
        "vllm_omni.inputs.data": {"OmniDiffusionSamplingParams": types.SimpleNamespace},
        "vllm_omni.model_extras": {"build_text_to_image_prompt": lambda key, given, *size: given["prompt"]},
    }
    for name, content in modules.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
        vars(sys.modules[name]).update(content)
    monkeypatch.setattr(stage_recording, "recording_config", lambda *_: "")
    return found


def row(text: str, index: int, **inputs: str) -> dict[str, Any]:
    info = {"split": "train", "index": index, "inputs": json.dumps(inputs)}
    return {"prompt": [{"role": "user", "content": text}], "extra_info": info}


def test_rows_without_a_file_get_one_and_the_grid_may_be_drawn_whole(asked: list[Any], tmp_path: Path) -> None:
    """vllm-omni's default is 16 tokens, and the pipeline is refused what is no whole picture."""
    rows = [row("a", 0), row("b", 1, stage_inputs="there.safetensors")]
    record_stage_inputs(PLAN, rows, "model", "", str(tmp_path), 64, 48)
    assert asked == [("a", 4 * (3 + 1) + 1, 16), "closed"]
    assert [json.loads(one["extra_info"]["inputs"])["stage_inputs"] for one in rows] == [
        str(tmp_path / "train-0.safetensors"),
        "there.safetensors",
    ]


def test_stages_that_make_nothing_are_an_error_and_end(asked: list[Any], tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="handed nothing to stage 1 of toy_stages"):
        record_stage_inputs(PLAN, [row("nothing", 0)], "model", "", str(tmp_path), 64, 48)
    assert asked[-1] == "closed"
    with pytest.raises(ValueError, match="1 rows name no file of stage_inputs"):
        record_stage_inputs(PLAN, [row("a", 0)], "", "", str(tmp_path), 64, 48)
