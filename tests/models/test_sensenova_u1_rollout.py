"""The rendered package against the real pipeline on a CPU; a mistake in it is seen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_rollout import assert_passes, rolled

pytestmark = [pytest.mark.rollout, pytest.mark.slow, pytest.mark.upstream]
VERSION = "0.30.0"
PACKAGE = "verl_omni/pipelines/sensenova_u1_flow_grpo"


@pytest.mark.parametrize("plain", [False, pytest.param(True, marks=pytest.mark.rollout_table)])
def test_every_check_passes(sensenova: Callable[..., Path], plain: bool) -> None:
    results = rolled(sensenova(VERSION, plain=plain) / PACKAGE, VERSION)
    assert_passes(results, VERSION, "SenseNovaU1Pipeline")
    assert "binds 14 of 14 sent modules" in results["rollout-lora-log-prob"].reason


MODEL, TRAINING = "sensenova_u1_model.py", "diffusers_training_adapter.py"
MISTAKES = {
    "noise of another scale": (MODEL, "hidden_states = exact.latents * scale", "hidden_states = exact.latents"),
    "the model not told of the noise's scale": (MODEL, "scale / self.config.noise_limit", "scale"),
    "rows and columns exchanged": (TRAINING, '"latent_positions": grid', '"latent_positions": grid.flip(-1)'),
    "parts of a token in another order": (MODEL, "permute(0, 1, 2, 4, 6, 3, 5)", "permute(0, 1, 4, 2, 6, 3, 5)"),
    "time the other way round": (MODEL, "1 - timestep.float()", "timestep.float()"),
    "no text in the unconditional branch": (
        TRAINING,
        "negative_ids(config, latents)",
        "negative_ids(config, latents)[:, :1]",
    ),
    "the latent rounded before it becomes a velocity": (
        "../flow_grpo_runtime/composed_layers.py",
        "latents.detach().float()",
        "latents.detach().bfloat16().float()",
    ),
}


# One in each file that a mistake may stand in.
FIRSTS = {
    "noise of another scale",
    "rows and columns exchanged",
    "the latent rounded before it becomes a velocity",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FIRSTS else pytest.mark.rollout_table) for name in MISTAKES]
)
def test_a_mistake_that_only_a_reference_shows(sensenova: Callable[..., Path], tmp_path: Path, name: str) -> None:
    tree = shutil.copytree(sensenova(VERSION), tmp_path / "tree", symlinks=True)
    file, before, after = MISTAKES[name]
    path = tree / PACKAGE / file
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), encoding="utf-8")
    results = rolled(tree / PACKAGE, VERSION, "rollout-wide-velocity", "rollout-engine-float32")
    assert results["rollout-engine-float32"].status == "pass"
    assert results["rollout-wide-velocity"].status == "fail"
