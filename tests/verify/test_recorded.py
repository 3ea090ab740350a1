"""Level contract of a hand-written package where its real pipeline was recorded: training is compared with that.

What stands for the recording here is made by the sound package, so a change of it must show.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import require

from scaffold.verify import contract_level
from scaffold.verify.rollout.engine_side.recording import FILE
from tests.warm_python import WarmPython

require("torch", "tensordict")

TREE = Path(__file__).parent / "hand_written" / "embeddings"
SELECT = ("cfg-settings", "rollout-log-probs", "rollout-noise", "schedule-diffusers-0.38.0", "window-per-step")
MAKE = """
import json, os, sys
import torch
from types import SimpleNamespace as Names
from verl_omni.pipelines.quilt_flow_grpo.quilt import Quilt, QuiltSizes, QuiltTrainer as adapter

folder, steps = sys.argv[1], 4
torch.manual_seed(0)
os.makedirs(f"{folder}/scheduler"), json.dump({"shift": 3.0}, open(f"{folder}/scheduler/scheduler_config.json", "w"))
module = Quilt(QuiltSizes(48, 2, 2, 2, 4, 20, (8, 8, 8)))
module.save_pretrained(folder)
NAMES = ("prompt_embeds", "prompt_embeds_mask", "negative_prompt_embeds", "negative_prompt_embeds_mask")


def settings(kind="sde", scale=3.5, steps=steps):
    pipeline = Names(num_inference_steps=steps, guidance_scale=scale)
    return Names(local_path=folder, pipeline=pipeline, algo=Names(noise_level=0.7, sde_type=kind))


@torch.no_grad()
def sample(length, **asked):
    config = settings(**asked)
    scheduler = adapter.build_scheduler(config)
    times, extra = scheduler.timesteps[None], {}
    for name in NAMES:
        extra[name] = torch.ones(length).long() if name.endswith("mask") else torch.randn(length, 20)
    latents, log_probs = torch.randn(1, steps + 1, 4, 4, 6), []
    columns = {name: value[None] for name, value in extra.items()}
    for step in range(steps):
        both = adapter.prepare_model_inputs(module, config, latents, times, *columns.values(), None, step)
        given = {"all_latents": latents, "all_timesteps": times}
        log_probs.append(adapter.forward_and_sample_previous_step(module, scheduler, config, *both, given, step)[0])
    kept = {"latents": latents[0], "timesteps": times[0], "log_probs": torch.cat(log_probs)}
    return {**kept, "token_ids": list(range(length)), "velocities": [None] * steps, "extra": extra}


recording = {
    "samples": [sample(3), sample(5)],
    "kinds": {kind: sample(4, kind=kind) for kind in ("sde", "cps", "dance_sde")},
    "guided": {scale: sample(4, scale=scale) for scale in (1.0, 2.0)},
    "plain": [],
    "schedules": {n: adapter.build_scheduler(settings(steps=n)).timesteps.tolist() for n in (3, 9)},
    "windows": {step: [0.1 * step, 0.1 * step] for step in (1, 2, 3)},
    "size": {"height": 32, "width": 48, "num_frames": None},
    "steps": steps,
    "noise_level": 0.7,
    "guidance": {"guidance_scale": 3.5},
}
torch.save(recording, os.path.join(folder, "recording.pt"))
"""


@pytest.fixture
def quilt(
    tmp_path: Path,
    warm_python: WarmPython,
    kit_environment: Callable[..., dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Return the folder of a package whose pipeline was recorded."""
    shutil.copytree(TREE, tmp_path / "tree", ignore=shutil.ignore_patterns("__pycache__"))
    made = tmp_path / "made"
    done = warm_python(["-c", MAKE, made], env=kit_environment(tmp_path / "tree"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert (made / FILE).is_file()
    rolled = {"float32": {"checkpoint": str(made), "folder": str(made)}}
    monkeypatch.setattr(contract_level, "recorded", lambda *_: rolled)
    return next((tmp_path / "tree" / "verl_omni" / "pipelines").iterdir())


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("", "", set()),
        ("v = u + (", "v = v + (", {"cfg-settings", "rollout-log-probs"}),
        ("(model_config.pipeline.guidance_scale or DEFAULT_SCALE)", "DEFAULT_SCALE", {"cfg-settings"}),
    ],
)
def test_training_is_compared_with_what_was_recorded(
    old: str, new: str, wrong: set[str], quilt: Path, results: Any, edit: Callable[..., None]
) -> None:
    if old:
        edit(quilt / "quilt.py", old, new)
    found = results(quilt, *SELECT)
    told = {name: f"{check.status}: {check.reason}" for name, check in found.items()}
    assert {name for name, check in found.items() if check.status == "fail"} == wrong, told
    assert {name for name, check in found.items() if check.status == "pass"} == set(SELECT) - wrong, told


def test_a_schedule_that_does_not_fit_shows_as_that(quilt: Path, results: Any, edit: Callable[..., None]) -> None:
    edit(quilt / "quilt.py", 'json.load(f)["shift"]', "1.0")
    found = results(quilt, *SELECT)
    failed = {"rollout-log-probs", "schedule-diffusers-0.38.0"}
    assert {name for name, check in found.items() if check.status == "fail"} == failed
    assert "training's schedule has no timestep" in found["rollout-log-probs"].reason
    assert found["rollout-noise"].status == found["cfg-settings"].status == "skip"


def test_a_window_of_a_request_and_a_pipeline_that_does_not_run_are_failures(
    quilt: Path, results: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    file = contract_level.recorded(None, None, ())["float32"]["folder"] + f"/{FILE}"  # type: ignore[arg-type]
    recording = torch.load(file)
    torch.save({**recording, "windows": {1: [0.1, 0.2], 2: [0.2, 0.1]}}, file)
    assert results(quilt, "window-per-step")["window-per-step"].status == "fail"
    told = "the real pipeline could not be recorded: it ends"
    monkeypatch.setattr(contract_level, "recorded", lambda *_: {"float32": {"unknown": told, "failed": told}})
    found = results(quilt, "rollout-log-probs", "forward")
    assert {name: check.status for name, check in found.items()} == {"rollout-log-probs": "fail", "forward": "pass"}
    assert told in found["rollout-log-probs"].reason
