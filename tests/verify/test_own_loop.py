"""Rollout adapters that write the denoising loop themselves: their loop runs, over a stand-in for what they inherit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.verify.subject.inherited import Inherited

torch = pytest.importorskip("torch")

ONE_FILE = Path(__file__).parent / "hand_written" / "one_file"
CALL = "        out = super().forward(req)\n"
LOOP = """\
        latents, places = self.prepare_latents(p.height, p.width, generator=p.seed)
        texts = self.encode_prompt(req.prompts[0]["prompt"])
        for t in self.progress_bar(total=1).start() and tape.inner.timesteps:
            v = self.network(latents, t.expand(1), texts, places)
            u = self.network(latents, t.expand(1), None, places)
            v = u + asked["cfg_text_scale"] * (v - u)
            latents = tape.step(v[0], t, latents[0], None).prev_sample[None]
        out = SimpleNamespace(output={"payload": {"image": self.vae.decode(latents)[0]}})
"""
SELECTED = (
    *("cfg-formula", "cfg-settings", "float32-kept", "requests-apart", "rollout-log-probs", "rollout-noise"),
    *("schedule-diffusers-0.38.0", "window-alignment", "window-noise"),
)


@pytest.fixture
def own_loop(tmp_path: Path, edit: Callable[..., None]) -> Path:
    """Return the file of a package whose rollout adapter has a loop of its own."""
    shutil.copytree(ONE_FILE, tmp_path / "own_loop", ignore=shutil.ignore_patterns("__pycache__"))
    file = next((tmp_path / "own_loop" / "verl_omni" / "pipelines").iterdir()) / "__init__.py"
    edit(file, CALL, LOOP)
    return file


@pytest.mark.upstream
def test_a_sound_loop_holds_every_contract_of_the_rollout(results: Any, own_loop: Path) -> None:
    found = results(own_loop.parent, *SELECTED, "prompt-ids")
    told = {name: f"{check.status}: {check.reason}" for name, check in found.items() if check.status != "pass"}
    assert told.keys() == {"prompt-ids"}
    assert "its own loop" in told["prompt-ids"]


@pytest.mark.upstream
@pytest.mark.parametrize(
    ("right", "wrong", "contracts"),
    [
        ("timesteps[begin:end][None]", "timesteps[begin:].roll(-1)[: end - begin][None]", {"rollout-log-probs"}),
        ("u + asked[", "u + 1.5 * asked[", {"cfg-settings"}),
        ('asked["cfg_text_scale"] * (', '{**asked, **vars(p)}["guidance_scale"] * (', {"cfg-settings"}),
        ("tape.start(p.num_inference_steps,", "tape.start(p.num_inference_steps + 1,", {"schedule-diffusers-0.38.0"}),
        ('options if inside else {**self.options, "noise_level": 0.0}', "options", {"window-noise"}),
        ("self.x = self.x or [x.float()[None]]", "self.x = self.x or [following]", {"window-alignment"}),
    ],
)
def test_a_mistake_in_the_loop_fails_its_contract(
    right: str, wrong: str, contracts: set[str], results: Any, own_loop: Path, edit: Callable[..., None]
) -> None:
    edit(own_loop, right, wrong)
    edit(own_loop, "asked.setdefault", "p.guidance_scale = p.guidance_scale or 4.0\n        asked.setdefault")
    found = results(own_loop.parent, *contracts)
    assert {name for name, check in found.items() if check.status == "fail"} == contracts, found


@pytest.mark.upstream
@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("latents, places = self.prepare_latents(", "latents, places = list(self.prepare_latents(", "prepare_latents"),
        ("v = u + asked", "v = -u - asked", "another velocity than training"),
        ("v = self.network(latents, t.expand(1), texts, places)", "v = latents", "stand-in"),
    ],
)
def test_a_loop_that_cannot_be_stood_in_for_is_a_skip(
    right: str, wrong: str, told: str, results: Any, own_loop: Path, edit: Callable[..., None]
) -> None:
    edit(own_loop, right, wrong)
    if wrong.endswith("list(self.prepare_latents("):
        edit(own_loop, "generator=p.seed)", "generator=p.seed))")
    if wrong == "v = latents":
        edit(own_loop, "u = self.network(latents, t.expand(1), None, places)", "u = latents")
    check = results(own_loop.parent, "rollout-log-probs")["rollout-log-probs"]
    assert check.status == "skip", check.reason
    assert told in check.reason
    assert "--level rollout" in check.reason


def test_what_is_inherited_gives_as_many_items_as_are_unpacked() -> None:
    asked: list[str] = []

    def answer(path: str, args: Any, kwargs: Any) -> Any:
        asked.append(path)
        return 7 if path == "encode()[1]" else None

    pipeline = Inherited("encode", answer)
    text, mask = pipeline("a sign", padding=True)
    assert (text.path, mask, asked) == ("encode()[0]", 7, ["encode()", "encode()[0]", "encode()[1]"])
    with pytest.raises(TypeError, match=r"how many items encode\(\) has"):
        list(pipeline())


def test_what_is_inherited_is_a_number_beside_a_tensor() -> None:
    scale = Inherited("vae", lambda *_: None).config.scaling_factor
    assert torch.equal(torch.full((2,), 3.0) * scale, torch.full((2,), 3.0))
    assert torch.cat([scale, scale]).path == "cat(vae.config.scaling_factor)"
    assert torch.tensor([[2, scale]]).tolist() == [[2, 1]]
