"""Inputs without which a pipeline refuses a request, and what it then does with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import SIGMAS, look

TURN = """
for i in range(steps):
    v = self.net(x, sigmas[i], cond)
    x = x + (sigmas[i + 1] - sigmas[i]) * v
"""
ASKED = """
given = prompt.get("additional_information", {})
if "prepared" in given:
    picture = given.get("prepared")
    cond = cond + picture
else:
    raise RuntimeError("no picture")
"""
INDIRECT = """
picture = None
given = prompt.get("additional_information", {})
if "prepared" in given:
    picture = given.get("prepared")
    cond = cond + picture
else:
    if picture is None:
        raise RuntimeError("no picture")
    cond = cond - picture
"""


@pytest.mark.parametrize("before", [ASKED, INDIRECT])
def test_the_loop_is_reached_with_what_is_demanded(tmp_path: Path, before: str) -> None:
    found = look(tmp_path, before + SIGMAS + TURN)
    assert (found.value("scheduler.steps"), found.value("cfg.branches")) == ("n", 1)
    # The loop was not executed by itself, which would leave no more than likely.
    assert found.fact("denoiser.class").confidence == "certain"


def test_what_is_demanded_may_be_there(tmp_path: Path) -> None:
    loop = ASKED + SIGMAS + "for i in range(steps):\n    v = self.net(x, sigmas[i], cond)\n"
    loop += "    u = self.net(x, sigmas[i], picture)\n    if picture is not None:\n        v = u + 3.0 * (v - u)\n"
    loop += "    x = x + (sigmas[i + 1] - sigmas[i]) * v\n"
    assert look(tmp_path, loop).value("cfg.branches") == 2


def test_a_refusal_that_no_input_prevents(tmp_path: Path) -> None:
    found = look(tmp_path, "raise NotImplementedError('later')\n" + SIGMAS + TURN)
    assert found.fact("scheduler.steps").confidence != "certain"
