"""What is asked again is not worked out again; what differs in anything is."""

from __future__ import annotations

from scaffold.remembered import remembered


def test_the_last_answer_is_given_again_and_no_other() -> None:
    asked: list[tuple[list[int], int]] = []

    @remembered
    def total(numbers: list[int], *, more: int = 0) -> int:
        asked.append((numbers, more))
        return sum(numbers) + more

    assert [total([1, 2]), total([1, 2]), total([1, 2], more=3), total([2, 1])] == [3, 3, 6, 3]
    assert asked == [([1, 2], 0), ([1, 2], 3), ([2, 1], 0)]
    assert total([1, 2]) == 3
    assert len(asked) == 4
