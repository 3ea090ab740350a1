"""Parts of a pipeline that are made when they are first asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import EULER, look

NETS = """

class Wide(Net):
    pass


def make(kind=None):
    return Wide() if kind == "wide" else Net()
"""
INIT = "self.net = None\nself.kind = 'narrow'"
PART = """

class Parts:
    def part(self):
        if self.net is None:
            self.net = {call}
        return self.net

    def build(self):
        return make(self.kind)
"""
MAYBE = "if params.guidance_scale > 2.0:\n    self.part()\n"
OFTEN = "self.part()\n" * 6


def found(tmp_path: Path, call: str, before: str) -> tuple[object, object]:
    loop = before + EULER.replace("self.net(", "self.part()(")
    assert "self.part()(" in loop
    report = look(tmp_path, loop, init=INIT, before=NETS + PART.format(call=call), bases="nn.Module, Parts")
    return report.value("denoiser.class"), report.fact("denoiser.class").confidence


@pytest.mark.parametrize("call", ["Net()", "make(self.kind)", "make(kind=self.kind)", "self.build()"])
@pytest.mark.parametrize("before", ["", MAYBE, MAYBE + OFTEN])
def test_part_that_is_made_on_first_use(tmp_path: Path, call: str, before: str) -> None:
    assert found(tmp_path, call, before) == ("Net", "certain")


@pytest.mark.parametrize("call", ["make(self.kind)", "self.build()"])
def test_part_that_is_made_of_what_changes_between_two_uses(tmp_path: Path, call: str) -> None:
    before = MAYBE + "self.kind = 'wide'\n" + MAYBE
    assert found(tmp_path, call, before) == (None, "unknown")
