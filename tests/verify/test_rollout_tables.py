"""Tables that both sides multiply by: which is coarser, whatever makes it and however it is laid out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch")

import torch

from scaffold.verify.rollout.engine_side.tables import Table, Trace, less_precise

RATES = 10000.0 ** -(torch.arange(8) / 8)
ANGLES = torch.outer(torch.arange(12.0), RATES)
Make = Callable[[], torch.Tensor]


def met(make: Make, dtype: torch.dtype = torch.bfloat16) -> list[Table]:
    """Tables that activations ``(12, 8)`` meet, made inside of the trace."""
    x = torch.randn(12, 8, dtype=dtype)
    with Trace([x]) as trace:
        x.float() * make()
    return trace.found


@pytest.mark.parametrize(
    ("make", "coarse"),
    [
        (lambda: ANGLES.cos(), False),
        (lambda: ANGLES.T.contiguous().cos().T, False),
        (lambda: torch.polar(torch.ones_like(ANGLES), ANGLES).real, False),
        (lambda: ANGLES.cos().bfloat16(), True),
        (lambda: ANGLES.cos().bfloat16().float(), True),
        (lambda: ANGLES.half().cos(), True),
        (lambda: torch.outer(torch.arange(12.0), RATES.bfloat16().float()).cos(), True),
        (lambda: torch.cat([ANGLES.bfloat16()[:, :4].cos(), ANGLES.bfloat16()[:, 4:].cos()], -1), True),
    ],
)
def test_the_precision_that_a_table_went_through_counts(make: Make, coarse: bool) -> None:
    found = list(less_precise(met(make), met(lambda: ANGLES.cos())))
    assert bool(found) == coarse
    assert list(less_precise(met(lambda: ANGLES.cos()), met(make))) == [], "the rollout may be the coarser one"


def test_cosines_and_sines_of_one_side_may_be_complex_numbers_of_the_other() -> None:
    x = torch.randn(12, 8, 2)
    with Trace([x]) as trace:
        torch.view_as_complex(x) * torch.polar(torch.ones_like(ANGLES), ANGLES)
    assert len(list(less_precise(met(lambda: ANGLES.bfloat16().sin()), trace.found))) == 1


def test_tables_that_are_equally_coarse_or_others_are_no_finding() -> None:
    half = met(lambda: ANGLES.cos().bfloat16())
    assert list(less_precise(half, half)) == []
    assert list(less_precise(half, met(lambda: (7 * ANGLES).sin()))) == []
    exact = torch.arange(96.0).reshape(12, 8)  # bfloat16 holds these
    assert list(less_precise(met(lambda: exact.bfloat16()), met(lambda: exact))) == []


def test_activations_and_weights_are_no_tables() -> None:
    layer, x = torch.nn.Linear(8, 8), torch.randn(12, 8)
    with torch.no_grad(), Trace([x]) as trace:
        _ = layer(x) * x + torch.randn(12, 8)
    assert trace.found == []
