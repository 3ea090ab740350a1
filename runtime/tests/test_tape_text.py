"""A tape reads as the formula that a person would write."""

from __future__ import annotations

import pytest
import torch
from taped import Guidance, record

from flow_grpo_runtime.calls import _constant
from flow_grpo_runtime.tape import Tape
from flow_grpo_runtime.tape_text import formula, formulas

SHOWN: list[tuple[Guidance, int, str]] = [
    (lambda c, u, x: u + 4.0 * (c - u), 1, "velocity = p1 + (p0 - p1) * 4"),
    (lambda c, u, x: u.float() + 4.0 * (c - u).detach(), -1, "velocity = -(p1 + (p0 - p1) * 4)"),
    (lambda c, u, x: (x - (c / 2).clamp(-1, 1)) / torch.tensor(0.5), 1, "velocity = (x - clamp(p0 / 2, -1, 1)) / 0.5"),
    (lambda c, u, x: 1 - c, 1, "velocity = 1 - p0"),
    (lambda c, u, x: c - (u - c), 1, "velocity = p0 - (p1 - p0)"),
    (lambda c, u, x: (c - u) * (c - u).norm(), 1, "velocity = (p0 - p1) * norm(p0 - p1, p=fro)"),
]


@pytest.mark.parametrize(("guidance", "sign", "shown"), SHOWN)
def test_a_formula_is_short(guidance: Guidance, sign: int, shown: str) -> None:
    taped = record(guidance)
    constants = [_constant(value, taped.latents) for value in taped.constants]
    assert formula(taped.program, constants, sign) == shown


def test_what_is_used_several_times_has_a_line_of_its_own() -> None:
    def shared(c: torch.Tensor, u: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        d = c - u
        return c + d * d.mean()

    taped = record(shared)
    assert formula(taped.program, taped.constants) == "t0 = p0 - p1\nvelocity = p0 + t0 * mean(t0)"


def test_what_comes_of_earlier_steps_says_so() -> None:
    tape, held = Tape(), []

    def momentum(c: torch.Tensor, u: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        held.append(c if not held else c + held[-1])
        return held[-1] - u

    record(momentum, tape=tape)
    taped = record(momentum, tape=tape, seed=1)
    shown = formula(taped.program, taped.constants)
    assert shown == "velocity = p0 + [1x4x8x8 numbers of earlier steps, without a gradient] - p1"


def test_steps_of_one_program_are_one_formula() -> None:
    tape = Tape()
    steps = [record(lambda c, u, x, level=level: u + level * (c - u), tape=tape) for level in (1.5, 4.0)]
    last = record(lambda c, u, x: c * 1.0, tape=tape)
    programs = [{"program": taken.program, "leaves": [], "sign": -1} for taken in (steps[0], last)]
    carried = {"programs": programs, "tapes": [(0, steps[0].constants), (0, steps[1].constants), (1, last.constants)]}
    assert formulas(carried) == [("velocity = -(p1 + (p0 - p1) * c0)", [0, 1]), ("velocity = -(p0 * 1)", [2])]
