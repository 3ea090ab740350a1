"""The expression that a package computes in place of the pipeline's guidance, taken from what a loop does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from synthetic import BOTH, look, turns

BEFORE = """
none = self.encode("")
scale = params.extra_args.get("strength", 6.5)
"""
S = "guidance['strength']"


def combination(tmp_path: Path, body: str, before: str = BEFORE) -> Any:
    return look(tmp_path, turns(body, before)).fact("detail.cfg.combination").value


@pytest.mark.parametrize(
    ("written", "text", "neutral"),
    [
        ("u + scale * (c - u)", f"unconditional + {S} * (conditional - unconditional)", 1.0),
        ("c + (scale - 1) * (c - u)", f"conditional + ({S} - 1) * (conditional - unconditional)", 1.0),
        ("c + scale * (c - u)", f"conditional + {S} * (conditional - unconditional)", 0.0),
        ("torch.lerp(u, c, scale)", f"torch.lerp(unconditional, conditional, {S})", 1.0),
        ("scale * c + (1 - scale) * u", f"{S} * conditional + (1 - {S}) * unconditional", 1.0),
        ("-(u - scale * (u - c))", f"unconditional - {S} * (unconditional - conditional)", 1.0),
    ],
)
def test_as_the_source_writes_it(tmp_path: Path, written: str, text: str, neutral: float) -> None:
    found = combination(tmp_path, BOTH + f"v = {written}")
    assert (found["text"], found["unconditional"], found["neutral"]) == (text, 1, neutral)
    assert found["settings"] == [{"name": "strength", "default": 6.5, "others": []}]


GATED = """
c = self.net(x, sigmas[i], cond)
if scale > 1:
    u = self.net(x, sigmas[i], none)
    v = c + scale * (c - u)
    if scale > 5:
        w = v * 2
else:
    v = c
"""


def test_a_number_above_which_a_scale_guides_is_known(tmp_path: Path) -> None:
    assert (combination(tmp_path, GATED)["neutral"], combination(tmp_path, GATED)["above"]) == (0.0, 1.0)
    assert combination(tmp_path, GATED.replace("scale > 1", "1.5 < scale"))["above"] == 1.5
    assert "above" not in combination(tmp_path, GATED.replace("scale > 1", "scale > 0"))
    # What a second number changes is not one guidance any more.
    assert combination(tmp_path, GATED.replace("w = v * 2", "v = v * 2")) is None


def test_three_predictions_and_two_scales(tmp_path: Path) -> None:
    before = BEFORE + 'other = params.extra_args.get("second", 2.0)\n'
    body = BOTH + 'w = self.net(x, sigmas[i], self.encode("w"))\nv = u + scale * (c - w) + other * (w - u)'
    found = combination(tmp_path, body, before)
    assert found["unconditional"] == 2
    assert found["text"] == (
        f"unconditional[0] + {S} * (conditional - unconditional[1])"
        " + guidance['second'] * (unconditional[1] - unconditional[0])"
    )


WEAKENED = """
v = c = self.net(x, sigmas[i], cond)
if none is not None:
    u = self.net(x, sigmas[i], none)
    v = u + scale * (c - u)
if other > 0.0:
    w = self.net(x * 2, sigmas[i], cond)
    v = v + other * (c - w)
"""


def test_a_second_scale_that_makes_one_more_prediction(tmp_path: Path) -> None:
    """It is off at 0 and the first one at 1; how many predictions there are says which of them are on."""
    before = (
        'scale = params.extra_args.get("strength", 6.5)\nother = params.extra_args.get("second", 0.0)\n'
        'none = self.encode("") if scale > 1.0 else None\n'
    )
    found = combination(tmp_path, WEAKENED, before)
    assert (found["fewest"], found["unconditional"], found["neutral"]) == (1, 2, 1.0)
    assert [entry["name"] for entry in found["settings"]] == ["strength", "second"]
    numbers = {"conditional": 5.0, "guidance": {"strength": 3.0, "second": 0.5}}
    assert eval(found["text"], {**numbers, "unconditional": [2.0, 4.0]}) == 2 + 3 * (5 - 2) + 0.5 * (5 - 4)
    assert eval(found["text"], {**numbers, "unconditional": [4.0]}) == 5 + 0.5 * (5 - 4)
    off = {"strength": 3.0, "second": 0.0}
    assert eval(found["text"], {**numbers, "guidance": off, "unconditional": [2.0]}) == 2 + 3 * (5 - 2)


def test_two_rows_of_one_call(tmp_path: Path) -> None:
    body = """
    u, c = self.net(torch.cat([x, x]), sigmas[i], torch.cat([none, cond])).chunk(2)
    v = u + scale * (c - u)
    """
    assert combination(tmp_path, body)["text"] == f"unconditional + {S} * (conditional - unconditional)"


def test_a_setting_that_is_asked_under_two_names(tmp_path: Path) -> None:
    before = 'none = self.encode("")\nscale = params.extra_args.get("strength") or params.guidance_scale\n'
    found = combination(tmp_path, BOTH + "v = u + scale * (c - u)", before)
    assert found["settings"] == [{"name": "strength", "default": 1.0, "others": ["guidance_scale"]}]


def test_the_first_of_several_that_is_given(tmp_path: Path) -> None:
    before = """
none = self.encode("")
for given in (params.extra_args.get("strength"), params.guidance_scale, 3.0):
    if given is not None:
        scale = given
        break
"""
    found = combination(tmp_path, BOTH + "v = u + scale * (c - u)", before)
    assert found["settings"] == [{"name": "strength", "default": 1.0, "others": ["guidance_scale"]}]


INSIDE = """
c = self.net(x, sigmas[i], cond)
v = c
if 0.25 <= i / steps <= 0.75:
    u = self.net(x, sigmas[i], none)
    v = u + scale * (c - u)
"""


def test_an_interval_in_which_alone_the_branch_runs(tmp_path: Path) -> None:
    assert combination(tmp_path, INSIDE)["text"] == f"unconditional + {S} * (conditional - unconditional)"


def test_a_branch_that_runs_outside_of_the_interval_too(tmp_path: Path) -> None:
    """What runs says nothing of where guidance acts: the rule would be needed."""
    body = BOTH + "v = u + scale * (c - u) if 0.25 <= i / steps <= 0.75 else c"
    assert combination(tmp_path, body) is None


def test_a_scale_that_the_turn_changes(tmp_path: Path) -> None:
    """Only where it cannot be anything else than the setting: guidance acts above 1 alone."""
    body = """
    c = self.net(x, sigmas[i], cond)
    now = scale if 0.25 <= i / steps <= 0.75 else 1.0
    v = c
    if now > 1.0:
        u = self.net(x, sigmas[i], none)
        v = u + now * (c - u)
    """
    assert combination(tmp_path, body)["text"] == f"unconditional + {S} * (conditional - unconditional)"
    assert combination(tmp_path / "other", body.replace("else 1.0", "else 2.0")) is None


NORM = """
v = u + scale * (c - u)
if params.extra_args.get("norm", False):
    v = v * (torch.linalg.vector_norm(c{dim}) / torch.linalg.vector_norm(v{dim}))
"""


@pytest.mark.parametrize(
    ("dim", "along"),
    [("", "tuple(range(1, conditional.ndim))"), (", dim=-1, keepdim=True", "(-1,)")],
)
def test_a_norm_that_a_setting_switches_on(tmp_path: Path, dim: str, along: str) -> None:
    found = combination(tmp_path, BOTH + NORM.format(dim=dim))
    guided = f"unconditional + {S} * (conditional - unconditional)"
    norms = [f"torch.linalg.vector_norm({of}, dim={along}, keepdim=True)" for of in ("conditional", guided)]
    assert found["text"] == f"({guided}) * ({norms[0]} / {norms[1]}) if guidance['norm'] else {guided}"
    assert {entry["name"]: entry["default"] for entry in found["settings"]} == {"strength": 6.5, "norm": False}


@pytest.mark.parametrize(
    "v",
    [
        "u + scale * (c - u) * x.std()",  # the sample takes part
        "u + scale * (c - u) * sigmas[i]",  # the time takes part
        "(u + scale * (c - u)).clamp(-1, 1)",
        "c * torch.linalg.vector_norm(u, dim=(1, 2)) * scale",
        "u + c * scale",  # no setting leaves one prediction
        "c",
    ],
)
def test_what_is_not_understood(tmp_path: Path, v: str) -> None:
    assert combination(tmp_path, BOTH + f"v = {v}") is None
