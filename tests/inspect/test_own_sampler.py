"""A sampler of a pipeline's own, under whatever names: a schedule with its last point joined on, a step in a method."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import look

from scaffold.inspect import Report

BEFORE = """
import json
import os
from dataclasses import dataclass


@dataclass
class Settings:
    shift: float = 2.5
    last: float = 0.02

    @classmethod
    def read(cls, root):
        with open(os.path.join(root, "sampler.json")) as file:
            return cls(**json.load(file))


class Walk:
    def __init__(self, settings):
        self.settings, self.levels = settings, None

    def prepare(self, n):
        s = torch.linspace(1.0, self.settings.last, n)
        s = self.settings.shift * s / (1 + (self.settings.shift - 1) * s)
        self.levels = torch.cat([s, s.new_zeros(1)])
        return self.levels

    def advance(self, v, i, x):
        return x + (self.levels[i + 1] - self.levels[i]) * v
"""
INIT = "self.walk = Walk(Settings.read(od_config.model))\n"
LOOP = """
n = req.sampling_params.num_inference_steps
levels = self.walk.prepare(n)
x = torch.randn(1, 4, 8)
for i in range(n):
    v = self.net(x, levels[i].expand(1), 0)
    x = self.walk.advance(v, i, x)
"""


def report(tmp_path: Path, walk: str = BEFORE, names: str = "") -> Report:
    loop = LOOP
    for old, new in zip(("prepare", "advance"), names.split(), strict=False):
        loop, walk = loop.replace(f".{old}(", f".{new}("), walk.replace(f"def {old}(", f"def {new}(")
    return look(tmp_path, loop, init=INIT, before=walk)


@pytest.mark.parametrize("names", ["", "set_timesteps step"])
def test_the_schedule_is_counted(tmp_path: Path, names: str) -> None:
    found = report(tmp_path, names=names)
    assert found.fact("answers.scheduler.steps").value == "n"
    # A file says where it ends, and how it is shifted.
    assert found.fact("answers.scheduler.shift").confidence == "unknown"


@pytest.mark.parametrize("names", ["", "set_timesteps step"])
def test_the_call_of_the_step_is_what_the_rollout_replaces(tmp_path: Path, names: str) -> None:
    found = report(tmp_path, names=names)
    parts = found.fact("detail.region.parts").value
    assert (parts["sample"], parts["output"], parts["function"]) == ("x", "v", "forward")
    assert parts["first"] == parts["last"]
