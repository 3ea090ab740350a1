"""Images of a request as a package's own agent loop sends them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from scaffold.verify.declared import Declared
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


@pytest.mark.parametrize("several", [False, True])
def test_the_first_frame_of_a_warm_up_has_the_size_of_its_video(several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's request asks for 512 pixels and brings an image of them; both are made small."""
    pytest.importorskip("torch")
    from scaffold.verify.rollout.engine_side.engine import Engine

    picture = image.new("RGB", (512, 512))
    prompt = {"prompt": "dummy run", "multi_modal_data": {"image": [picture] if several else picture}}
    params = SimpleNamespace(height=512, width=512, num_frames=5)
    sent = SimpleNamespace(prompt=prompt, sampling_params=params)

    class DiffusionEngine:
        def _dummy_run(self) -> None:
            self.add_req_and_wait_for_response(sent)  # type: ignore[attr-defined]

    engines = ModuleType("vllm_omni.diffusion.diffusion_engine")
    engines.DiffusionEngine = DiffusionEngine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, engines.__name__, engines)
    for name in ("vllm_omni", "vllm_omni.diffusion"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    engine = object.__new__(Engine)
    engine.prepare, engine.config = None, None
    engine.worker = SimpleNamespace(execute_model=lambda request, config: request)
    request = engine.warm_up(64, 96, None)
    (brought,) = (
        request.prompt["multi_modal_data"]["image"] if several else [request.prompt["multi_modal_data"]["image"]]
    )
    assert brought.size == (params.width, params.height) == (96, 64)


def test_a_first_frame_is_not_made_of_the_prompt() -> None:
    """Else another prompt would move the branch without it, which gets the frame too."""
    torch = pytest.importorskip("torch")
    from scaffold.verify.subject.columns import columns

    table = Declared(columns={"first_frame": (4, 2), "prompt_embeds": (3, 2), "condition_image": (2,)})
    one, other = (columns(table, [prompt]) for prompt in ((5, 6, 7), (9, 8)))
    assert torch.equal(one["first_frame"], other["first_frame"])
    assert torch.equal(one["condition_image"], other["condition_image"])
    assert not torch.equal(one["prompt_embeds"], other["prompt_embeds"])
