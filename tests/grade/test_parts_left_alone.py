"""A checkpoint of all parts of a pipeline: training loads the denoiser's, and says what it leaves alone."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.grade.test_ported_data import files

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytestmark = pytest.mark.upstream
KEY, PACKAGE = "MammothModa2DiTPipeline", "mammoth_moda2_di_t_flow_grpo"


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package's module of weights."""
    folder = tmp_path / PACKAGE
    folder.mkdir()
    (folder / "__init__.py").touch()
    for path, text in files(KEY).items():
        if Path(path).parent.name == PACKAGE and path.endswith("_weights.py"):
            (folder / Path(path).name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(f"{PACKAGE}.mammoth_moda2_di_t_weights")
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_the_parts_that_are_left_alone_are_named(
    weights: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from safetensors.torch import save_file

    folder, values = tmp_path / "checkpoint", torch.randn(2, 2)
    folder.mkdir()
    others = {name: torch.zeros(1) for name in ("llm_model.a", "llm_model.b", "odd.x")}
    save_file({"gen_transformer.weight": values, **others}, folder / "model.safetensors")
    module = torch.nn.Linear(2, 2, bias=False)
    with caplog.at_level(logging.WARNING):
        found = weights.read_checkpoint(module, str(folder), [(None, "", None)])
    assert torch.equal(found.state["weight"], values)
    assert found.keys["weight"] == ("model.safetensors", "gen_transformer.weight")
    assert "2 such as llm_model.a, 1 such as odd.x" in caplog.text
    # One without the denoiser's own name in front is another part's, and the denoiser's is missing.
    save_file({"weight": values}, folder / "model.safetensors")
    with pytest.raises(ValueError, match="1 missing: weight"):
        weights.read_checkpoint(module, str(folder), [(None, "", None)])
