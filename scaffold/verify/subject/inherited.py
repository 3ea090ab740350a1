"""Stands for what an adapter takes from the upstream pipeline, where only the adapter itself is to run."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

Answer = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]


class Inherited(int):
    """An attribute, a call or an item of the upstream pipeline; each of it is another, as a number it is 1.

    Attributes:
        path: how it was reached, such as ``encode()[0]``.
        answer: asked for what a call returns or an item is, by its path and the arguments; None for another of these.
    """

    path: str
    answer: Answer

    def __new__(cls, path: str, answer: Answer) -> Inherited:
        made = super().__new__(cls, 1)
        made.path, made.answer = path, answer
        return made

    def _made(self, path: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        known = self.answer(path, args, kwargs or {})
        return Inherited(path, self.answer) if known is None else known

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inherited(f"{self.path}.{name}", self.answer)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._made(f"{self.path}()", args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self._made(f"{self.path}[{key!r}]" if isinstance(key, int | str) else f"{self.path}[…]")

    def __setitem__(self, key: Any, value: Any) -> None:
        """Forgotten."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        # ``a, b = …`` asks for as many as it names; how many there are for a loop is not known.
        frame = sys._getframe(1)
        operation = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        if operation != "UNPACK_SEQUENCE":
            raise TypeError(f"how many items {self.path} has is not known")
        return iter([self[i] for i in range(frame.f_code.co_code[frame.f_lasti + 1])])

    def __enter__(self) -> Inherited:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was entered."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Beside a tensor it is a number; functions of nothing but these give another."""
        first = next(iter(_of(cls, (*args, *(kwargs or {}).values()))))
        if any(True for _ in _of(Tensor, (*args, *(kwargs or {}).values()))):
            return func(*_numbers(args), **{name: _numbers(value) for name, value in (kwargs or {}).items()})
        return first._made(f"{getattr(func, '__name__', 'function')}({first.path})")


def _of(kind: Any, values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, kind):
            yield value
        elif isinstance(value, list | tuple):
            yield from _of(kind, value)


def _numbers(value: Any) -> Any:
    if isinstance(value, Inherited):
        return int(value)
    return type(value)(map(_numbers, value)) if type(value) in (list, tuple) else value
