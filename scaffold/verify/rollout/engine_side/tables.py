"""Traces tables that a denoiser multiplies its activations by, such as RoPE's: their values and their precision.

A table is made without activations and weights: a buffer, an attribute, what sine and cosine give, and whatever
reshaping, casts and arithmetic among tables make of those. A trace follows them to where they meet an activation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
_WAVES = ("aten.cos", "aten.sin", "aten.polar")
_MEETS = ("aten.mul", "aten.add", "aten.sub")  # a product of matrices rounds what goes into it anyway
_RANDOM = ("aten.rand", "aten.normal", "aten.empty", "aten.bernoulli")
NEAR, EQUAL = 2.0**-7, 2.0**-16  # of a table's largest number: what is the same table, and what the same numbers
LEAST = 4  # values: fewer make a constant, not a table


@dataclass(frozen=True)
class Table:
    """One table where it meets an activation.

    Attributes:
        values: its different numbers, ascending, ``(N,)`` float64.
        dtype: the least precise dtype that they went through.
        place: file and line of the package that multiplied by it; empty elsewhere.
    """

    values: torch.Tensor
    dtype: torch.dtype
    place: str

    @property
    def bits(self) -> int:
        """Bits of a number's fraction."""
        return _BITS[self.dtype]


class Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the tables that meet an activation while it is active.

    Args:
        activations: tensors that are inputs, not constants.
        root: folder of the package, below which a place is looked for.
        when: says of each moment whether tables are recorded; what they are made of is followed all the time.
    """

    def __init__(
        self,
        activations: Iterable[torch.Tensor] = (),
        root: Path | None = None,
        when: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[Table] = []
        self._when = when
        self._root = "" if root is None else f"{root}/"
        self._given = {tensor.untyped_storage().data_ptr() for tensor in activations}
        self._known: Any = WeakTensorKeyDictionary()  # the least precise dtype of a table, None of an activation
        self._told: set[tuple[Any, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        states = [self._state(value) for value in given if _precise(value.dtype) is not None]
        tables = [dtype for dtype in states if dtype is not None]
        meets = len(tables) < len(states)
        name = str(func)
        if meets and tables and name.startswith(_MEETS):
            for value in given:
                dtype = None if _precise(value.dtype) is None else self._state(value)
                if dtype is not None:
                    self._note(value, dtype)
        out = func(*args, **(kwargs or {}))
        wave, random = name.startswith(_WAVES), name.startswith(_RANDOM)
        for value in tree_leaves(out):
            own = _precise(value.dtype) if isinstance(value, torch.Tensor) else None
            if own is None:
                continue
            if wave:
                self._known[value] = min((own, *tables), key=_BITS.__getitem__)
            elif meets or random:
                self._known[value] = None
            else:
                self._known[value] = min((own, *tables), key=_BITS.__getitem__)
        return out

    def _state(self, value: torch.Tensor) -> torch.dtype | None:
        if value in self._known:
            state: torch.dtype | None = self._known[value]
            return state
        weight = isinstance(value, torch.nn.Parameter) or value.requires_grad
        return None if weight or value.untyped_storage().data_ptr() in self._given else _precise(value.dtype)

    def _note(self, value: torch.Tensor, dtype: torch.dtype) -> None:
        if value.numel() < LEAST or not self._when():
            return
        if value.is_complex():  # cosines and sines, which another side may have apart
            for part in torch.view_as_real(value.detach().resolve_conj()).unbind(-1):
                self._note(part, dtype)
            return
        values = torch.unique(value.detach().reshape(-1).double())
        values = values[values.isfinite()]
        key = (dtype, len(values), float(values.sum()))
        if len(values) >= LEAST and key not in self._told:
            self._told.add(key)
            self.found.append(Table(values, dtype, self._place()))

    def _place(self) -> str:
        frame: Any = sys._getframe(2) if self._root else None
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(self._root):
                return f"{file.removeprefix(self._root)}:{frame.f_lineno}"
            frame = frame.f_back
        return ""


def _precise(dtype: torch.dtype) -> torch.dtype | None:
    """The floating-point dtype of a table's numbers; None of integers and truths."""
    real = _REAL.get(dtype, dtype)
    return real if real in _BITS else None


def less_precise(training: Iterable[Table], rollout: Iterable[Table]) -> Iterator[tuple[Table, Table, float]]:
    """Tables of training whose numbers are coarser than those of the same table in the rollout, and by how much.

    The same table is the one whose numbers are nearest. The distance is absolute.
    """
    known = list(rollout)
    for table in training:
        near = [(apart, other) for other in known if (apart := _apart(table, other)) <= NEAR * _size(other)]
        if not near:
            continue
        apart, other = min(near, key=lambda pair: pair[0])
        if table.bits < other.bits and apart > EQUAL * _size(other):
            yield table, other, apart


def _size(table: Table) -> float:
    return max(float(table.values.abs().max()), 1e-12)


def _apart(one: Table, other: Table) -> float:
    """Return the largest distance of a value from the other table's nearest value."""
    return max(_nearest(one.values, other.values), _nearest(other.values, one.values))


def _nearest(values: torch.Tensor, among: torch.Tensor) -> float:
    at = torch.searchsorted(among, values)
    below, above = among[(at - 1).clamp(min=0)], among[at.clamp(max=len(among) - 1)]
    return float(torch.minimum((values - below).abs(), (values - above).abs()).max())
