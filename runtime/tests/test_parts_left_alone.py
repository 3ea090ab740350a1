"""A checkpoint of all parts of a pipeline: training loads the denoiser's, and says what it leaves alone."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from flow_grpo_runtime.checkpoint import DenoiserSource, read_checkpoint  # noqa: E402
from flow_grpo_runtime.engine_config import EngineConfig  # noqa: E402


def test_the_parts_that_are_left_alone_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from safetensors.torch import save_file

    folder, values = tmp_path / "checkpoint", torch.randn(2, 2)
    folder.mkdir()
    others = {name: torch.zeros(1) for name in ("llm_model.a", "llm_model.b", "odd.x")}
    save_file({"gen_transformer.weight": values, **others}, folder / "model.safetensors")
    module = torch.nn.Linear(2, 2, bias=False)
    source = DenoiserSource(build=None, prefix="gen_transformer.")
    given = str(folder), [(None, "", None)], source, EngineConfig(str(folder), torch.float32)
    with caplog.at_level(logging.WARNING):
        found = read_checkpoint(module, *given)
    assert torch.equal(found.state["weight"], values)
    assert found.keys["weight"] == ("model.safetensors", "gen_transformer.weight")
    assert "2 such as llm_model.a, 1 such as odd.x" in caplog.text
    # One without the denoiser's own name in front is another part's, and the denoiser's is missing.
    save_file({"weight": values}, folder / "model.safetensors")
    with pytest.raises(ValueError, match="1 missing: weight"):
        read_checkpoint(module, *given)
