"""Images of a request as a package's own agent loop sends them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaffold.verify.rollout.scenarios.row import sent_by_loop

image = pytest.importorskip("PIL.Image")
FITTED = """
import json
from PIL import Image

def read_media(extra_info, size=(None, None)):
    with Image.open(json.loads(extra_info["inputs"])["image"]) as picture:
        return {"image": picture.resize(size)}
"""
UNFITTED = "def read_media(extra_info):\n    raise AssertionError\n"


@pytest.mark.parametrize(("name", "loop"), [("loop_fits", FITTED), ("loop_as_is", UNFITTED), ("loop_none", None)])
def test_a_loop_that_follows_the_size_brings_the_image_to_it(
    name: str, loop: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    if loop is not None:
        (tmp_path / name / "agent_loop.py").write_text(loop)
    monkeypatch.syspath_prepend(tmp_path)
    bring = sent_by_loop(name)
    assert (bring is not None) == (loop == FITTED)
    if bring is not None:
        assert bring({"image": image.new("RGB", (4, 12))}, (4, 6))["image"].size == (4, 6)
