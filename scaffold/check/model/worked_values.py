"""What values stand for while a text is worked out."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from scaffold.check.model.arrays import Array
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.name_functions import NotPlainError


class RefusedError(Exception):
    """The text raises an exception for what it is given."""


class Opaque:
    """The type of `OPAQUE`."""

    def __repr__(self) -> str:
        return "OPAQUE"


OPAQUE: Final = Opaque()


@dataclass(frozen=True)
class External:
    """Something of another library, by its dotted name."""

    name: str


class Stub:
    """A stand-in for an object: attributes by name, and what its methods answer.

    Args:
        attributes: what is known of it; others are opaque, or missing where ``open_ended`` is false.
        methods: by name; ``__call__`` for the object itself.
        open_ended: whether attributes that are not named may exist.
        cls: its class, whose properties and methods it has.
    """

    def __init__(
        self,
        attributes: dict[str, Any],
        methods: dict[str, Callable[..., Any]] | None = None,
        open_ended: bool = True,
        cls: ClassModel | None = None,
    ) -> None:
        self.attributes, self.methods, self.open_ended, self.cls = attributes, methods or {}, open_ended, cls


@dataclass(frozen=True)
class Bound:
    """A function or method with what it belongs to."""

    function: FunctionModel
    receiver: Any = None
    cls: ClassModel | None = None


@dataclass(frozen=True)
class Inner:
    """A nested function or lambda with the names around it."""

    node: ast.FunctionDef | ast.Lambda
    names: dict[str, Any]


class ReturnedError(Exception):
    """The text returns ``value``."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class BrokenError(Exception):
    """``break`` (``goes_on`` false) or ``continue``."""

    def __init__(self, goes_on: bool) -> None:
        super().__init__()
        self.goes_on = goes_on


def number(value: Any, kind: type) -> Any:
    """Return a plain number of a kind; of an array of one element, that element.

    Raises:
        NotPlainError: it is no number.
    """
    if isinstance(value, Array):
        value = value.reshaped([]).values[0]
    if isinstance(value, str) and kind is not bool:
        return kind(value)
    if not isinstance(value, (bool, int, float)) and kind is not bool:
        raise NotPlainError
    return kind(value)


def holds_opaque(values: list[Any]) -> bool:
    """Whether a list or tuple among values has something opaque in it."""
    return any(any(item is OPAQUE for item in value) for value in values if isinstance(value, (list, tuple)))
