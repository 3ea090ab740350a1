"""Runs that meet at one call: what each gets does not depend on the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from flow_grpo_runtime.lockstep import Lockstep


def walked(lockstep: Lockstep[float, float, list[float]], steps: int) -> Callable[[], list[float]]:
    return lambda: [lockstep.ask(float(step)) + float(torch.rand(())) * 0 for step in range(steps)]


def test_questions_of_a_turn_are_answered_together() -> None:
    turns: list[list[float]] = []

    def together(questions: list[float]) -> list[float]:
        turns.append(questions)
        return [question + 0.5 for question in questions]

    lockstep: Lockstep[float, float, list[float]] = Lockstep(together)
    results = lockstep.run([walked(lockstep, 2), walked(lockstep, 3)])
    assert results == [[0.5, 1.5], [0.5, 1.5, 2.5]]
    assert turns == [[0.0, 0.0], [1.0, 1.0], [2.0]]


def test_an_error_of_a_run_is_its_own() -> None:
    lockstep: Lockstep[float, float, list[float]] = Lockstep(lambda questions: questions)

    def fails() -> list[float]:
        lockstep.ask(0.0)
        raise ValueError("too long")

    first, second = lockstep.run([fails, walked(lockstep, 2)])
    assert isinstance(first, ValueError)
    assert second == [0.0, 1.0]


def test_an_error_of_the_answer_is_everybodys() -> None:
    def together(questions: list[float]) -> list[float]:
        raise RuntimeError("no memory")

    lockstep: Lockstep[float, float, list[float]] = Lockstep(together)
    results = lockstep.run([walked(lockstep, 1), walked(lockstep, 1)])
    assert [str(result) for result in results] == ["no memory", "no memory"]


def test_whoever_interrupts_leaves_nobody_waiting() -> None:
    ended: list[str] = []

    def together(questions: list[float]) -> list[float]:
        raise KeyboardInterrupt

    lockstep: Lockstep[float, float, list[float]] = Lockstep(together)

    def run() -> list[float]:
        try:
            return [lockstep.ask(0.0)]
        finally:
            ended.append("run")

    with pytest.raises(KeyboardInterrupt):
        lockstep.run([run, run])
    assert ended == ["run", "run"]


def test_random_numbers_are_those_of_a_run_alone() -> None:
    lockstep: Lockstep[int, int, list[float]] = Lockstep(lambda questions: questions)

    def draws(seed: int | None) -> Callable[[], list[float]]:
        def draw() -> list[float]:
            if seed is not None:
                torch.manual_seed(seed)
            found = []
            for step in range(3):
                found.append(float(torch.rand(())))
                lockstep.ask(step)
            return found

        return draw

    before = torch.get_rng_state()
    alone = [lockstep.run([draws(seed)])[0] for seed in (3, 4)]
    assert lockstep.run([draws(3), draws(4)]) == alone
    assert torch.equal(torch.get_rng_state(), before)
    unseeded = lockstep.run([draws(None), draws(None)])
    assert unseeded[0] != unseeded[1]


def test_a_run_has_the_settings_of_whoever_starts_it() -> None:
    lockstep: Lockstep[int, int, tuple[bool, bool]] = Lockstep(lambda questions: questions)

    def settings() -> tuple[bool, bool]:
        return torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")

    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert lockstep.run([settings]) == [(True, True)]
    assert lockstep.run([settings]) == [(False, False)]
