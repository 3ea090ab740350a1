"""The training module under FSDP1 and FSDP2, two processes on a CPU, against the same module unsharded."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import require
from warm_python import WarmPython

from scaffold.files.resources import RUNTIME, kit_root, runtime_root
from scaffold.render import render

torch = pytest.importorskip("torch")
require("peft")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("torch was built without gloo", allow_module_level=True)

pytestmark = pytest.mark.xdist_group("sharding")  # one worker runs the scenarios
WORLD = 2
FLOAT32 = 1e-5
# Rounding of the update before it is added, and of every product: a few units in the last of eight bits.
BFLOAT16 = 3e-2
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_latent_size": 8,
    "latent_channel": 3,
    "start_of_image_id": 3,
    "end_of_image_id": 4,
}
Findings = Callable[[str, str], list[dict[str, Any]]]


def launch(warm_python: WarmPython, folder: Path, group: str) -> list[dict[str, Any]]:
    """Run a group of scenarios in as many processes as there are ranks; return each rank's findings."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
    }
    worker = Path(__file__).with_name("sharded_worker.py")
    ended = warm_python.ranks(*[(worker, rank, WORLD, folder, group) for rank in range(WORLD)], env=environment)
    assert [rank.returncode for rank in ended] == [0] * WORLD, "\n".join(rank.stderr[-3000:] for rank in ended)
    return [json.loads((folder / f"{group}-{rank}.json").read_text(encoding="utf-8")) for rank in range(WORLD)]


@pytest.fixture(scope="module")
def findings(reference_spec, warm_python, tmp_path_factory) -> Findings:
    """Return a function that gives every rank's findings on a scenario; each group runs once."""
    folder = tmp_path_factory.mktemp("sharding")
    names, lora = reference_spec.sections["names"], reference_spec.sections["lora"]
    rendered = render(reference_spec)[f"verl_omni/pipelines/{names['package']}/{names['model']}_model.py"].content
    pipelines = folder / "verl_omni" / "pipelines"
    pipelines.mkdir(parents=True)
    base = "verl_omni/pipelines/non_diffusers_model_base.py"
    (folder / base).write_text((kit_root() / base).read_text(encoding="utf-8"), encoding="utf-8")
    (pipelines / RUNTIME).symlink_to(runtime_root())
    (pipelines / "rendered_model.py").write_text(rendered, encoding="utf-8")
    plan = {
        "model_class": "BagelForTraining",
        "config_class": "BagelTrainingConfig",
        "config": SIZES,
        **{key: list(lora[key]) for key in ("targets", "trainable", "layer_prefixes")},
    }
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    of_group = functools.cache(functools.partial(launch, warm_python, folder))

    def find(group: str, scenario: str) -> list[dict[str, Any]]:
        found = [rank[scenario] for rank in of_group(group)]
        for rank in found:
            assert "error" not in rank, rank["error"]
        return found

    return find


@pytest.mark.parametrize(
    ("group", "scenario", "tolerance"),
    [
        ("fsdp1", "train", FLOAT32),
        ("fsdp1", "train in bf16", BFLOAT16),
        ("fsdp2", "train lora", FLOAT32),
        ("fsdp2", "train in full", FLOAT32),
    ],
)
def test_checkpointed_training_gives_the_unsharded_output_and_gradients(group, scenario, tolerance, findings):
    for found in findings(group, scenario):
        assert found["output"] < tolerance
        assert found["trained"] > 0
        assert found["missing"] == []
        assert found["gradient"] < tolerance


def test_fsdp1_repeats_its_output_without_grad(findings):
    for found in findings("fsdp1", "without grad"):
        assert len(found["outputs"]) == 2
        assert max(found["outputs"]) < FLOAT32


@pytest.mark.parametrize(
    ("group", "scenario"), [("fsdp1", "collect"), ("fsdp2", "collect lora"), ("fsdp2", "collect in full")]
)
def test_layer_prefixes_reach_every_parameter_of_the_sharded_layers(group, scenario, findings):
    for found in findings(group, scenario):
        assert found["expected"] > 0
        assert found["missing"] == []
        assert found["changed"] == []


def test_mixed_precision_leaves_the_rotary_tables_in_float32(findings):
    for found in findings("fsdp2", "mixed precision"):
        assert found["seen"] == ["stream torch.bfloat16", "table torch.float32"]
        assert found["output"] == 0
        assert found["missing"] == []
        assert found["gradient"] < BFLOAT16
