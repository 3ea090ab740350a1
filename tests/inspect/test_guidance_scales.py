"""Scales of guidance, their defaults, and which ways through a turn exclude each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from synthetic import look

PLAIN = "v = u + scale * (c - u)"


def turns(body: str, before: str = "") -> str:
    return synthetic.turns(synthetic.BOTH + body.strip(), f'none = self.encode("")\n{before}')


def test_scale_that_is_spread_over_the_batch(tmp_path: Path) -> None:
    before = 'scale = torch.tensor([params.extra_args.get("strength", 6.5)]).view(1, 1, 1)'
    assert look(tmp_path, turns(PLAIN, before)).value("cfg.scales") == {"strength": 6.5}


def test_scale_of_settings_in_a_list(tmp_path: Path) -> None:
    before = """

class Settings:
    def __init__(self, strength):
        self.strength = strength
"""
    loop = turns(
        PLAIN,
        "given = [Settings(params.extra_args.get('strength', 3.5)) for _ in range(len(req.prompts))]\n"
        "scale = torch.tensor([s.strength for s in given])",
    )
    assert look(tmp_path, loop, before=before).value("cfg.scales") == {"strength": 3.5}


def test_scale_that_is_not_understood_is_unknown(tmp_path: Path) -> None:
    found = look(tmp_path, turns(PLAIN, "scale = self.tokenizer.scale_of(prompt)")).fact("cfg.scales")
    assert (found.value, found.confidence) == (None, "unknown")


def test_default_of_a_scale_that_the_request_leaves_out(tmp_path: Path) -> None:
    before = 'provided = params.extra_args.get("provided", False)\nscale = params.guidance_scale if provided else 4.5'
    assert look(tmp_path, turns(PLAIN, before)).value("cfg.scales") == {"guidance_scale": 4.5}


PROVIDED = """
        if self.sampling_params.guidance_scale:
            self.sampling_params.guidance_scale_provided = True
        else:
            self.sampling_params.guidance_scale = 1.0
"""


def test_scale_that_the_request_class_marks_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, _, _ = synthetic.REQUEST.partition("        if not self.sampling_params.guidance_scale")
    fields = "    guidance_scale: float = 0.0\n"
    request = head.replace(fields, fields + "    guidance_scale_provided: bool = False\n") + PROVIDED.lstrip("\n")
    options = "\n\n@dataclass\nclass Options:\n    model: str = ''\n"
    options += "\n\n@dataclass\nclass Output:\n    output: object = None\n"
    monkeypatch.setattr(synthetic, "REQUEST", request + options)
    before = "scale = params.guidance_scale if params.guidance_scale_provided else 4.5"
    found = look(tmp_path, turns(PLAIN, before))
    assert found.value("cfg.scales") == {"guidance_scale": 4.5}


def test_setting_that_is_only_written_is_not_read(tmp_path: Path) -> None:
    before = "scale = 2.0\nif prompt.get('fast'):\n    params.seed = 7"
    assert "seed" not in look(tmp_path, turns(PLAIN, before)).value("prompt.sampling_params")


def test_two_settings_of_one_scale(tmp_path: Path) -> None:
    before = 'scale = params.extra_args.get("strength") or params.extra_args.get("power", 2.0)'
    assert look(tmp_path, turns(PLAIN, before)).value("cfg.scales") == {"strength": 2.0, "power": 2.0}


def test_default_from_a_file_is_likely(tmp_path: Path) -> None:
    init = "import json\nself.scale = json.load(open(od_config.model + '/config.json')).get('scale', 3.0)"
    before = 'scale = params.extra_args.get("strength", self.scale)'
    found = look(tmp_path, turns(PLAIN, before), init=init).fact("cfg.scales")
    assert (found.value, found.confidence) == ({"strength": 3.0}, "likely")


def test_ways_that_exclude_each_other(tmp_path: Path) -> None:
    body = """
if guided and together:
    c, u = self.net(torch.cat([x, x]), sigmas[i], torch.cat([cond, none])).chunk(2)
    v = u + scale * (c - u)
else:
    v = self.net(x, sigmas[i], cond)
if guided and not together:
    w = self.net(x, sigmas[i], none)
    v = w + scale * (v - w)
"""
    before = """
scale = params.extra_args.get("strength", 4.0)
guided = scale > 1.0
together = bool(params.extra_args.get("together", False))
"""
    found = look(tmp_path, turns(body, before))
    assert (found.value("cfg.branches"), found.value("cfg.execution")) == (2, "sequential")


def test_halves_of_a_list(tmp_path: Path) -> None:
    body = """
both = self.net(torch.cat([x, x]), sigmas[i], torch.cat([cond, none]))
first, second = both[:1], both[1:]
v = torch.stack([first[j].float() + scale * (first[j].float() - second[j].float()) for j in range(1)])
"""
    assert look(tmp_path, turns(body)).value("cfg.execution") == "batched"


@pytest.mark.parametrize("shape", ["v.permute(0, 2, 1)", "v.squeeze(0).unsqueeze(0)", "v.transpose(1, 2)"])
def test_guidance_before_the_prediction_is_reshaped(tmp_path: Path, shape: str) -> None:
    assert look(tmp_path, turns(f"{PLAIN}\nv = {shape}")).value("cfg.branches") == 2


def test_interval_that_was_decided_before_the_loop(tmp_path: Path) -> None:
    before = """
lo, hi = params.extra_args.get("span", (0.25, 0.75))
active = []
for k in range(steps):
    share = k / steps
    active.append(scale > 1.0 and (lo <= share <= hi))
"""
    found = look(tmp_path, turns("v = u + scale * (c - u) if active[i] else c", before))
    assert found.value("cfg.interval") == [0.25, 0.75]
    assert found.value("detail.cfg.interval_rule") == "lo <= step fraction <= hi"


def test_interval_that_was_decided_for_all_turns_at_once(tmp_path: Path) -> None:
    loop = """
none = self.encode("")
lo, hi = params.extra_args.get("span", (0.2, 0.9))
sigmas = torch.linspace(1.0, 0.0, steps + 1)
times = sigmas[:-1]
within = (times >= lo) & (times <= hi)
within &= scale > 1
within = within.tolist()
for i in range(steps):
    c = self.net(x, sigmas[i], cond)
    v = c
    if within[i]:
        u = self.net(x, sigmas[i], none)
        v = u + scale * (c - u)
    x = x + (sigmas[i + 1] - sigmas[i]) * v
"""
    found = look(tmp_path, loop)
    assert found.value("cfg.interval") == [0.2, 0.9]
    assert found.value("detail.cfg.interval_rule") == "lo <= sigma <= hi"
    assert found.value("detail.cfg.interval_parameter") == "span"


def test_turns_that_are_chosen_in_a_way_that_is_not_understood(tmp_path: Path) -> None:
    loop = turns("v = u + scale * (c - u) if active[i] else c", "active = self.tokenizer.turns_of(prompt)")
    assert look(tmp_path, loop).fact("cfg.interval").confidence == "unknown"


def test_text_that_is_encoded_beside_the_prompt_is_no_negative(tmp_path: Path) -> None:
    loop = turns(PLAIN, 'words = self.encode(params.extra_args.get("words", ""))')
    assert look(tmp_path, loop).value("detail.negative.keys") is None


def test_negative_text_that_is_repeated_for_the_batch(tmp_path: Path) -> None:
    before = 'none = self.encode(cond.shape[0] * [prompt.get("negative_prompt") or ""])'
    found = look(tmp_path, turns(PLAIN, before))
    assert found.value("detail.negative.keys") == ["prompt.negative_prompt"]
