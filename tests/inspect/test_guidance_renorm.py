"""Renormalisation without a name, and what of a helper's several returns is the default."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from synthetic import look

SCALE = 'scale = params.extra_args.get("strength", 6.5)'
NORMED = "v = v * (torch.norm(c, dim=-1, keepdim=True) / torch.norm(v, dim=-1, keepdim=True))"


def turns(body: str, before: str = SCALE) -> str:
    guided = synthetic.BOTH + "v = u + scale * (c - u)\n" + body.strip()
    return synthetic.turns(guided, f'from functools import partial\nnone = self.encode("")\n{before}')


def test_norm_that_is_always_taken(tmp_path: Path) -> None:
    report = look(tmp_path, turns(NORMED))
    assert report.value("cfg.scales") == {"strength": 6.5}
    assert report.fact("cfg.renorm").confidence == "unknown"


@pytest.mark.parametrize("default", ["False", "True", "0.0"])
def test_norm_that_a_request_may_ask_for(tmp_path: Path, default: str) -> None:
    before = f'{SCALE}\nflag = params.extra_args.get("flag", {default})'
    renorm = look(tmp_path, turns(f"if flag:\n    {NORMED}", before)).fact("cfg.renorm")
    assert (renorm.value, renorm.confidence) == (None, "unknown")


def test_norm_that_no_request_can_ask_for(tmp_path: Path) -> None:
    renorm = look(tmp_path, turns(f"if flag:\n    {NORMED}", f"{SCALE}\nflag = False")).fact("cfg.renorm")
    assert (renorm.value, renorm.confidence) == ([], "certain")


def test_norm_in_a_partial_function(tmp_path: Path) -> None:
    before = f"""
{SCALE}

def lengthen(low, pred, whole):
    return whole * (torch.norm(pred, dim=-1, keepdim=True) / torch.norm(whole, dim=-1, keepdim=True)).clamp(min=low)

lengthened = partial(lengthen, 0.0)
"""
    assert look(tmp_path, turns("v = lengthened(c, v)", before)).fact("cfg.renorm").confidence == "unknown"


def test_plain_guidance_has_no_renorm(tmp_path: Path) -> None:
    renorm = look(tmp_path, turns("v = v * 1.0")).fact("cfg.renorm")
    assert (renorm.value, renorm.confidence) == ([], "certain")


CHOSEN = """

def chosen(asked, given):
    if self.distilled:
        return asked {third}
    if given:
        return asked
    return 7.0

scale = chosen(params.extra_args.get("strength", 1.0), params.extra_args.get("given", False))
"""


def test_default_of_three_returns(tmp_path: Path) -> None:
    """The plain number behind two conditions is the default, not the parameter's own."""
    never = look(tmp_path / "a", turns("v = v", CHOSEN.format(third="* 0.0 + 7.0")))
    assert never.value("cfg.scales") in ({"strength": 7.0}, {"strength": None})
    two = CHOSEN.replace("    if self.distilled:\n        return asked {third}\n", "")
    assert look(tmp_path / "b", turns("v = v", two)).value("cfg.scales") == {"strength": 7.0}


def test_type_of_a_default(tmp_path: Path) -> None:
    before = """
given = params.extra_args.get("strength", 4.5)
scale = given if isinstance(given, (int, float)) else given[0]
"""
    assert look(tmp_path, turns("v = v", before)).value("cfg.scales") == {"strength": 4.5}


def test_dictionary_that_a_request_may_leave_empty(tmp_path: Path) -> None:
    """What is filled in turn by turn, some turns left out, is not a sign that the request asked for it."""
    before = """
hints = {}
for name in ("edge", "depth"):
    raw = params.extra_args.get(name)
    if raw == "none":
        continue
    hints[name] = raw
scale = params.extra_args.get("strength", 6.5)
if hints:
    scale = params.extra_args.get("hinted", 2.5)
"""
    assert set(look(tmp_path, turns("v = v", before)).value("cfg.scales")) == {"strength", "hinted"}
