"""Numbers as text, and their places on a logarithmic axis."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaffold.verify.report.log_scale import LogScale
from scaffold.verify.report.number import duration, figure, figures

numbers = st.floats(allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.0, "0"),
        (-0.0, "0"),
        (14.0, "14"),
        (1e-6, "1e-6"),
        (8.123e-8, "8.12e-8"),
        (0.25, "0.25"),
        (0.13124, "0.131"),
        (12345.67, "1.23e4"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
    ],
)
def test_figure(value: float | None, text: str) -> None:
    assert figure(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.00 s"), (9.99, "9.99 s"), (12.34, "12.3 s"), (125.4, "2 min 5 s"), (119.7, "2 min 0 s")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(numbers, numbers)
@settings(max_examples=200, deadline=None)
def test_a_value_beside_its_limit_never_looks_equal_unless_it_is(value: float, limit: float) -> None:
    shown, allowed = figures(value, limit)
    same = value == limit or (math.isnan(value) and math.isnan(limit))
    assert (shown == allowed) == same


@given(st.lists(numbers, max_size=8))
@settings(max_examples=200, deadline=None)
def test_places_on_the_axis_keep_the_order_of_the_values(values: list[float]) -> None:
    scale = LogScale.of(values)
    if scale is None:
        assert not any(0 < value < math.inf for value in values)
        return
    places = [(value, scale.place(value)) for value in values]
    assert all((place is None) == (math.isnan(value) or value < 0) for value, place in places)
    placed = [place for _, place in sorted((value, place) for value, place in places if place is not None)]
    assert placed == sorted(placed)
    assert all(0 <= place <= 100 for place in placed)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 8
    assert ticks == sorted(ticks)


def test_zero_and_infinity_stand_apart_from_the_decades() -> None:
    scale = LogScale.of([0.0, 1e-8, 1e-6, math.inf])
    assert scale is not None
    at = {label: place for place, label in scale.ticks()}
    assert list(at) == ["0", "1e-8", "1e-7", "1e-6", "inf"]
    assert at["0"] < at["1e-8"] - 5
    assert at["inf"] > at["1e-6"] + 5
    assert at["1e-7"] == pytest.approx((at["1e-8"] + at["1e-6"]) / 2)
    assert scale.place(10**-7.5) == pytest.approx((at["1e-8"] + at["1e-7"]) / 2, abs=0.02)


@pytest.mark.parametrize(
    ("value", "decades"), [(1e-6, (-7, -6)), (1.0, (-1, 0)), (3e-6, (-6, -5)), (5e-324, (-324, -323))]
)
def test_one_value_gets_a_decade_that_holds_it(value: float, decades: tuple[int, int]) -> None:
    scale = LogScale.of([value, 0.0])
    assert scale is not None
    assert (scale.low, scale.high) == decades
