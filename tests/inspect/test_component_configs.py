"""What a checkpoint's own configurations say of scheduler and autoencoder is taken where the source leaves it open."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream
LANTERN = Path(__file__).parents[1] / "own_pipeline/lantern/pipeline_lantern.py"


@pytest.fixture
def answers(scaffold_cli: Callable[..., Any], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that inspects with configurations beside weights, some of them in the root."""

    def run(scheduler: dict[str, Any], vae: dict[str, Any]) -> dict[str, Any]:
        for name, content in {"scheduler/scheduler_config.json": scheduler, "vae/config.json": vae}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(json.dumps(content))
        header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        (tmp_path / "one.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
        given = ("--vllm-omni", "0.30.0", "--checkpoint", tmp_path, "--format", "json")
        found: dict[str, Any] = json.loads(scaffold_cli("inspect", f"{LANTERN}:LanternPipeline", *given).success())
        return found

    return run


EULER = "FlowMatchEulerDiscreteScheduler"


def test_shift_and_autoencoder(answers: Callable[..., dict[str, Any]]) -> None:
    found = answers({"_class_name": EULER, "shift": 3}, {"_class_name": "AutoencoderKL", "latent_channels": 16})
    key = "answers.scheduler.shift"
    assert (found["answers"]["scheduler"]["shift"], found["confidence"][key]) == (3.0, "certain")
    assert found["evidence"][key][0]["file"].endswith("scheduler/scheduler_config.json")
    assert found["answers"]["vae"]["class"] is None  # the source says that there is none


@pytest.mark.parametrize(
    "config",
    [{"_class_name": "Other", "shift": 3.0}, {"_class_name": EULER, "shift": 3.0, "use_dynamic_shifting": True}],
)
def test_a_shift_that_is_not_the_schedulers(config: dict[str, Any], answers: Callable[..., dict[str, Any]]) -> None:
    assert answers(config, {})["confidence"]["answers.scheduler.shift"] == "unknown"
