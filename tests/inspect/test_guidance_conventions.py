"""How predictions are combined, when, how they are computed, and what the unconditional branch is given."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from synthetic import BOTH, look, turns

NONE = 'none = self.encode("")\n'


def loop(body: str, before: str = NONE) -> str:
    return turns(body, before)


@pytest.mark.parametrize(
    ("combined", "formula"),
    [
        ("u + scale * (c - u)", "u+s(c-u)"),
        ("scale * (c - u) + u", "u+s(c-u)"),
        ("torch.lerp(u, c, scale)", "u+s(c-u)"),
        ("c + (scale - 1) * (c - u)", "c+(s-1)(c-u)"),
        ("c + scale * (c - u)", "c+s(c-u)"),
    ],
)
def test_formula(tmp_path: Path, combined: str, formula: str) -> None:
    found = look(tmp_path, loop(BOTH + f"v = {combined}"))
    assert found.value("detail.cfg.formula") == formula
    assert (found.value("cfg.branches"), found.value("cfg.execution")) == (2, "sequential")


def test_no_guidance(tmp_path: Path) -> None:
    found = look(tmp_path, loop("v = self.net(x, sigmas[i], cond)"))
    assert (found.value("cfg.branches"), found.value("cfg.execution"), found.value("cfg.scales")) == (1, "none", {})


def test_batch_doubled(tmp_path: Path) -> None:
    body = """
    both = self.net(torch.cat([x, x]), sigmas[i], torch.cat([none, cond]))
    u, c = both.chunk(2)
    v = u + scale * (c - u)
    """
    found = look(tmp_path, loop(textwrap.dedent(body)))
    assert (found.value("cfg.branches"), found.value("cfg.execution")) == (2, "batched")


def test_packed(tmp_path: Path) -> None:
    body = """
    both = self.net(torch.cat([x, x], dim=1), sigmas[i], torch.cat([none, cond], dim=1))
    u, c = both.split([16, 16], dim=1)
    v = u + scale * (c - u)
    """
    found = look(tmp_path, loop(textwrap.dedent(body)))
    assert (found.value("cfg.branches"), found.value("cfg.execution")) == (2, "packed")


def test_three_branches(tmp_path: Path) -> None:
    body = BOTH + 'w = self.net(x, sigmas[i], self.encode("w"))\nt = w + 2.0 * (c - w)\nv = u + scale * (t - u)'
    found = look(tmp_path, loop(body))
    assert (found.value("cfg.branches"), found.value("cfg.execution")) == (3, "sequential")


def test_alternatives_are_not_added_up(tmp_path: Path) -> None:
    body = (
        BOTH
        + """
if params.extra_args.get("mode") == "other":
    w = self.net(x, sigmas[i], self.encode("w"))
    v = w + scale * (c - w)
else:
    v = u + scale * (c - u)
"""
    )
    assert look(tmp_path, loop(body)).value("cfg.branches") == 2


@pytest.mark.parametrize(
    ("condition", "interval", "rule"),
    [
        ("0.25 < sigmas[i] <= 0.75", [0.25, 0.75], "lo < sigma <= hi"),
        ("sigmas[i] >= 0.25 and sigmas[i] < 0.75", [0.25, 0.75], "lo <= sigma < hi"),
        ("0.25 <= i / steps <= 0.75", [0.25, 0.75], "lo <= step fraction <= hi"),
        ("0.25 <= (i + 1) / steps < 0.75", [0.25, 0.75], "lo <= step fraction < hi"),
    ],
)
def test_interval(tmp_path: Path, condition: str, interval: list[float], rule: str) -> None:
    found = look(tmp_path, loop(BOTH + f"v = u + scale * (c - u) if {condition} else c"))
    assert found.value("cfg.interval") == interval
    assert found.value("detail.cfg.interval_rule") == rule


def test_no_interval(tmp_path: Path) -> None:
    found = look(tmp_path, loop(BOTH + "v = u + scale * (c - u)")).fact("cfg.interval")
    assert (found.value, found.confidence) == (None, "certain")


@pytest.mark.parametrize("written", ["params.guidance_scale", "params.guidance_scale or 4.5"])
def test_default_that_the_request_class_fills_in(tmp_path: Path, written: str) -> None:
    found = look(tmp_path, loop(BOTH + "v = u + scale * (c - u)", f"{NONE}scale = {written}\n"))
    assert found.value("cfg.scales") == {"guidance_scale": 1.0}


def test_default_that_the_pipeline_fills_in(tmp_path: Path) -> None:
    before = NONE + 'scale = params.extra_args.get("strength", 6.5)\n'
    assert look(tmp_path, loop(BOTH + "v = u + scale * (c - u)", before)).value("cfg.scales") == {"strength": 6.5}


def test_zeros_in_the_place_of_the_prompt(tmp_path: Path) -> None:
    guided = BOTH + "v = u + scale * (c - u)"
    found = look(tmp_path, loop(guided, "none = torch.zeros_like(cond)\n")).fact("detail.negative.kind")
    assert (found.value, found.confidence) == ("zeros", "likely")


def test_words_in_the_place_of_the_prompt_are_not_worked_out(tmp_path: Path) -> None:
    before = 'none = self.encode(prompt.get("negative_prompt") or " ")\n'
    found = look(tmp_path, loop(BOTH + "v = u + scale * (c - u)", before))
    assert found.fact("detail.negative.kind").confidence == "unknown"
    assert found.value("detail.negative.keys") == ["prompt.negative_prompt"]


def test_a_join_along_the_tokens_is_no_branch(tmp_path: Path) -> None:
    body = "c = self.net(x, sigmas[i], torch.cat([cond, torch.zeros_like(cond)], dim=1))\n"
    body += "u = self.net(x, sigmas[i], self.learned)\nv = u + scale * (c - u)"
    found = look(tmp_path, loop(body), init="self.learned = nn.Parameter(torch.ones(8))")
    assert found.value("detail.negative.kind") is None


def test_no_branch_at_all(tmp_path: Path) -> None:
    found = look(tmp_path, loop("v = self.net(x, sigmas[i], cond)")).fact("detail.negative.kind")
    assert (found.value, found.confidence) == ("none", "likely")


def test_unconditional_branch_that_is_not_known(tmp_path: Path) -> None:
    before = 'none = self.encode(prompt.get("other"))\n'
    found = look(tmp_path, loop(BOTH + "v = u + scale * (c - u)", before)).fact("detail.negative.kind")
    assert (found.value, found.confidence) == (None, "unknown")


def test_interval_of_a_renormalisation_is_not_that_of_guidance(tmp_path: Path) -> None:
    body = BOTH + "v = u + scale * (c - u)\nif 0.25 < sigmas[i] <= 0.75:\n    v = v * (c.norm() / v.norm())"
    assert look(tmp_path, loop(body)).fact("cfg.interval").confidence == "unknown"
