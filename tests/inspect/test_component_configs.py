"""What a checkpoint's own configuration says of the autoencoder is taken where the source leaves it open."""

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
    """Return a function that inspects with a configuration beside weights."""

    def run(vae: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / "vae").mkdir()
        (tmp_path / "vae/config.json").write_text(json.dumps(vae))
        header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        (tmp_path / "one.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
        given = ("--vllm-omni", "0.30.0", "--checkpoint", tmp_path, "--format", "json")
        found: dict[str, Any] = json.loads(scaffold_cli("inspect", f"{LANTERN}:LanternPipeline", *given).success())
        return found

    return run


def test_an_autoencoder_that_the_source_rules_out(answers: Callable[..., dict[str, Any]]) -> None:
    found = answers({"_class_name": "AutoencoderKL", "latent_channels": 16})
    assert found["answers"]["vae"]["class"] is None  # the source says that there is none
