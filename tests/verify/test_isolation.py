"""A limit of time on a machine that others use, too: it stretches with the number of those who wait."""

from __future__ import annotations

import os
import time

import pytest

from scaffold.verify.child.isolation import MOST_CROWDED, is_over


@pytest.mark.parametrize(
    ("passed", "load", "over"),
    [
        (9.9, 0.0, False),
        (10.0, 0.0, True),
        (10.0, 2.0, True),
        (10.0, 8.0, False),
        (39.9, 8.0, False),
        (40.0, 8.0, True),
        (10.0 * MOST_CROWDED, 10_000.0, True),
        (10.0 * MOST_CROWDED - 0.1, 10_000.0, False),
        (10.0, None, True),
    ],
)
def test_a_limit_of_ten_seconds(monkeypatch: pytest.MonkeyPatch, passed: float, load: float | None, over: bool) -> None:
    def loads() -> tuple[float, float, float]:
        if load is None:
            raise OSError("nobody knows")
        return load, 0.0, 0.0

    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + passed)
    monkeypatch.setattr(os, "getloadavg", loads)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert is_over(1000.0, 10.0) is over


def test_nobody_looks_at_the_load_before_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that lies idle ends what hangs; one whose load is not a number of this platform still does."""
    monkeypatch.setattr(time, "monotonic", lambda: 20.0)
    monkeypatch.delattr(os, "getloadavg")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert is_over(0.0, 20.0)
    assert not is_over(0.1, 20.0)
