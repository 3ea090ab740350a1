"""Packages of a pipeline behind other stages: what those make is in files that rows name, and reaches the pipeline."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.grade.test_needs import readme
from tests.grade.test_ported_data import files
from tests.rendered_module import load, stand_in

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytestmark = [pytest.mark.upstream, pytest.mark.xdist_group("stage packages")]  # one worker renders it
KEY = "MingImageDiffusionPipeline"
PACKAGE = "ming_image_diffusion_flow_grpo"
INPUTS = {
    "prompt": "",
    "height": 64,
    "extra": {
        "states": torch.randn(3, 4).to(torch.bfloat16),
        "ids": [5, 6],
        "nested": [torch.arange(3), {"scale": 0.5, "words": ["a"], "none": None}],
    },
}


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package's module of stage inputs; the agent loop lies beside it."""
    folder = tmp_path / PACKAGE
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name in ("stage_inputs", "agent_loop"):
        (text,) = [text for path, text in files(KEY).items() if path.endswith(f"/{name}.py")]
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    stand_in(monkeypatch)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(f"{PACKAGE}.stage_inputs")
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def same(left: Any, right: Any) -> bool:
    """Whether two structures have the same values, tensors by dtype and bits."""
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and bool(torch.equal(left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def test_a_file_gives_back_what_was_written(stage: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "made" / "0.safetensors")
    stage.write_stage_inputs(path, INPUTS)
    assert same(stage.read_stage_inputs(path), INPUTS)
    with pytest.raises(ValueError, match=r"extra.image is a bytes"):
        stage.write_stage_inputs(path, {"extra": {"image": b""}})
    with pytest.raises(ValueError, match="is no file here"):
        stage.read_stage_inputs(str(tmp_path / "gone.safetensors"))
    importlib.import_module("safetensors.torch").save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="holds no stage_inputs"):
        stage.read_stage_inputs(path)


def test_a_request_gets_what_its_file_holds_once(stage: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "0.safetensors")
    stage.write_stage_inputs(path, INPUTS)
    prompt, params = {"prompt_token_ids": [1]}, types.SimpleNamespace(extra_args={"stage_inputs": path, "other": 1})
    stage.give_stage_inputs(prompt, params)
    given = {"prompt_token_ids": [1], **INPUTS, "stage_inputs": path}
    assert same(prompt, given)
    assert params.extra_args == {"other": 1}
    stage.give_stage_inputs(prompt, params)
    assert same(prompt, given)
    nothing: dict[str, Any] = {}
    stage.give_stage_inputs(nothing, types.SimpleNamespace(extra_args=None))
    assert nothing == {}


def test_the_agent_loop_sends_the_path_that_the_row_names(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.import_module(f"{PACKAGE}.agent_loop")
    path = tmp_path / "0.safetensors"
    path.touch()

    class Server:
        async def generate(self, **kwargs: Any) -> dict[str, Any]:
            return kwargs

    given = {"height": 64}
    loop = found.MingImageDiffusionAgentLoop(Server())
    sent = asyncio.run(loop.run(given, extra_info={"inputs": json.dumps({"stage_inputs": str(path)})}))
    assert sent["sampling_params"] == {"height": 64, "stage_inputs": str(path)}
    assert given == {"height": 64}
    for inputs, told in (({}, "the row has no stage_inputs"), ({"stage_inputs": "gone"}, "is no file here")):
        with pytest.raises(ValueError, match=told):
            asyncio.run(loop.run(given, extra_info={"inputs": json.dumps(inputs)}))


def test_rows_keep_the_file_that_a_line_names_and_wait_for_one_otherwise(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = [path for path in files(KEY) if path.endswith("_prompts.py")]
    (tmp_path / "script.py").write_text(files(KEY)[path], encoding="utf-8")
    script = load(tmp_path / "script.py", monkeypatch)
    stage.write_stage_inputs(str(tmp_path / "made.safetensors"), INPUTS)
    named = script.build_row({"prompt": "a", "stage_inputs": "made.safetensors"}, "train", 0, "x", str(tmp_path))
    assert json.loads(named["extra_info"]["inputs"]) == {"stage_inputs": str(tmp_path / "made.safetensors")}
    # Nothing waits: no engine is asked for.
    script.record_stage_inputs(script.STAGES, [named], "", "", str(tmp_path), 64, 64)
    waiting = script.build_row({"prompt": "a"}, "train", 1, "x", str(tmp_path))
    with pytest.raises(ValueError, match="1 rows name no file of stage_inputs: give the checkpoint by --model_path"):
        script.record_stage_inputs(script.STAGES, [named, waiting], "", "", str(tmp_path), 64, 64)
    with pytest.raises(ValueError, match="is no file here"):
        script.build_row({"prompt": "a", "stage_inputs": "gone"}, "train", 0, "x", str(tmp_path))


def test_what_is_precomputed_and_not_trained_is_said() -> None:
    text = readme(KEY)
    assert "**That is precomputed and not trained.**" in text
    assert "`mllm` of vllm-omni's topology `ming_image` makes" in text
    (script,) = [text for path, text in files(KEY).items() if path.endswith("_prompts.py")]
    assert "training neither runs nor changes that stage" in script
    (deploy,) = [text for path, text in files(KEY).items() if path.endswith("_deploy_config.yaml")]
    assert f"pipeline: {PACKAGE}\n" in deploy
    for path, text in files(KEY).items():
        assert "DEPLOY_CONFIG:?" not in text, path


def test_what_the_engine_asks_of_a_request_beforehand_is_asked_of_a_filled_one() -> None:
    """vllm-omni refuses a request of this pipeline without the states before the pipeline itself gets to see it."""
    (adapter,) = [
        text for path, text in files("MammothModa2DiTPipeline").items() if path.endswith("rollout_adapter.py")
    ]
    name = 'pipeline_mammothmoda2_dit, "get_mammoth_moda2_pre_process_func"'
    assert f"stage_inputs.prepare_with_stage_inputs({name})\n" in adapter
    assert "prepare_with_stage_inputs" not in "".join(files(KEY).values())


def test_a_request_is_filled_in_before_the_engine_looks_at_it(stage: Any, tmp_path: Path) -> None:
    from verl_omni.pipelines.flow_grpo_runtime.stage_inputs import prepare_with_stage_inputs

    path = str(tmp_path / "0.safetensors")
    stage.write_stage_inputs(path, {"height": 64})
    file = types.SimpleNamespace(make=lambda config: lambda request: (config, dict(request.prompt)))
    prepare_with_stage_inputs(file, "make")
    request = types.SimpleNamespace(
        prompt={"prompt": "a"}, sampling_params=types.SimpleNamespace(extra_args={"stage_inputs": path})
    )
    assert file.make("configuration")(request) == ("configuration", {"prompt": "a", "height": 64, "stage_inputs": path})


def test_a_stage_that_draws_a_grid_of_tokens_is_told_how_many() -> None:
    (script,) = [text for path, text in files("MammothModa2DiTPipeline").items() if path.endswith("_prompts.py")]
    assert "    grid=(16, 1, 1),\n" in script
    assert "grid=" not in "".join(text for path, text in files(KEY).items() if path.endswith("_prompts.py"))


def test_what_a_grid_of_tokens_may_be() -> None:
    from scaffold.grade.launch_values import RULES

    (allowed,) = [rule for key, rule, _ in RULES if key == "deploy.grid"]
    assert allowed(None)
    assert allowed({"pixels": 16, "row_end": 1, "last": 0})
    for wrong in (
        {"pixels": 0, "row_end": 1, "last": 1},
        {"pixels": 16},
        {"pixels": "16", "row_end": 1, "last": 1},
        16,
    ):
        assert not allowed(wrong)
