"""Functions that remember what they were last asked: a spec is composed again and again for one checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def remembered(function: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """Make a function of values that nobody changes give its last answer again where it is asked the same."""
    last: list[tuple[object, Answer]] = []

    @wraps(function)
    def asked(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
        if not last or last[0][0] != (args, kwargs):
            last[:] = [((args, kwargs), function(*args, **kwargs))]
        return last[0][1]

    return asked
