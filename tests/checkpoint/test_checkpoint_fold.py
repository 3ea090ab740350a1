"""Folding numbered names."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaffold.checkpoint import fold
from scaffold.checkpoint.fold import unfold
from scaffold.errors import ScaffoldError


def rows(names: list[str]) -> list[tuple[str, int]]:
    return [(row.pattern, row.count) for row in fold(names)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([f"layers.{n}.w" for n in range(28)], [("layers.{0..27}.w", 28)]),
        (["mlp.0.w", "mlp.2.w", "mlp.5.w"], [("mlp.{0,2,5}.w", 3)]),
        (["mlp.0.w", "mlp.2.w"], [("mlp.{0,2}.w", 2)]),
        (["a.7.b"], [("a.7.b", 1)]),
        ([f"a.{n}" for n in (0, 1, 2, 3, 7, 9, 10)], [("a.{0..3,7,9,10}", 7)]),
        ([f"l.{n}.e.{m}.w" for n in range(3) for m in range(4)], [("l.{0..2}.e.{0..3}.w", 12)]),
        # Layer 1 has one expert fewer: it must not be claimed.
        (
            [f"l.{n}.e.{m}" for n in range(3) for m in range(3) if (n, m) != (1, 2)],
            [("l.{0,2}.e.{0..2}", 6), ("l.1.e.{0..1}", 2)],
        ),
        # No numbers: leading zeros, signs, other scripts, letters.
        (["a.01.b", "a.02.b", "a.-1.b", "a.²"], [("a.-1.b", 1), ("a.01.b", 1), ("a.02.b", 1), ("a.²", 1)]),
        (["w.10", "w.9", "w.100x"], [("w.{9..10}", 2), ("w.100x", 1)]),
        ([], []),
        (["", "."], [("", 1), (".", 1)]),
    ],
)
def test_rows(names: list[str], expected: list[tuple[str, int]]) -> None:
    assert rows(names) == expected
    random.Random(0).shuffle(names)
    assert rows(names) == expected


@settings(max_examples=150, deadline=None)
@given(st.sets(st.lists(st.sampled_from(["0", "1", "2", "9", "10", "007", "a", "b"]), max_size=5).map(".".join)))
def test_every_name_is_in_exactly_one_row(names: set[str]) -> None:
    listed = [name for row in fold(names) for name in row.names]
    assert sorted(listed) == sorted(names)
    assert [name for row in fold(names) for name in unfold(row.pattern)] == listed


@pytest.mark.parametrize("name", ["a.{b}.c", "a.{}.c", "a.{1..}.c", "a.{0..1234567890}.c", "{", "a.{1,}.b"])
def test_what_is_no_row_stands_for_itself(name: str) -> None:
    assert list(unfold(name)) == [name]


@pytest.mark.parametrize("name", ["a.{0..1000000}", "a.{0..999}.b.{0..999}.c.{0..1}", "a.{0..999999999,0..999999999}"])
def test_a_row_stands_for_no_endless_names(name: str) -> None:
    with pytest.raises(ScaffoldError, match="stands for more than 1,000,000 names"):
        unfold(name)


def test_many_levels_end() -> None:
    name = ".".join(["0"] * 50_000)
    assert fold([name])[0].names == (name,)
