"""What methods of tensors and functions of ``torch`` and ``math`` answer for small arrays."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from scaffold.bounded import counted, operate
from scaffold.check.model.arrays import LARGEST, Array, array_of, combined, joined, stacked

_SAME = {
    *("clone", "detach", "contiguous", "cpu", "double", "half", "bfloat16", "type_as", "requires_grad_"),
    *("float", "numpy", "data", "type", "cuda", "pin_memory"),
}
_WHOLE = {"torch.long", "torch.int64", "torch.int32", "torch.int"}


def _sizes(given: Sequence[Any]) -> list[int]:
    return list(given[0]) if len(given) == 1 and isinstance(given[0], (list, tuple)) else list(given)


def _cast(array: Array, *kinds: Any, **options: Any) -> Array:
    names = {getattr(kind, "name", None) for kind in (*kinds, *options.values())}
    if names & _WHOLE:
        return array.map(int)
    return array.map(bool) if "torch.bool" in names else array


def _norm(array: Array, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> Array:
    power = 2 if ord in (None, "fro") else ord
    if power in (math.inf, -math.inf):
        pick = max if power > 0 else min
        return array.reduced(dim, keepdim, lambda group: pick(abs(value) for value in group))
    return array.reduced(
        dim, keepdim, lambda group: sum(operate(ast.Pow, abs(value), power) for value in group) ** (1 / power)
    )


def _limited(array: Array, min: Any = None, max: Any = None) -> Array:
    if min is not None:
        array = combined(lambda a, b: a if a >= b else b, array, min)
    return array if max is None else combined(lambda a, b: a if a <= b else b, array, max)


def _mean(array: Array, dim: Any = None, keepdim: bool = False) -> Array:
    return array.reduced(dim, keepdim, lambda group: sum(group) / len(group))


def _sum(array: Array, dim: Any = None, keepdim: bool = False) -> Array:
    return array.reduced(dim, keepdim, sum)


def _spread(array: Array, dim: Any = None, keepdim: bool = False, correction: int = 1) -> Array:
    def of(group: list[Any]) -> float:
        middle = sum(group) / len(group)
        return math.sqrt(sum((value - middle) ** 2 for value in group) / (len(group) - correction))

    return array.reduced(dim, keepdim, of)


def _flattened(array: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    first, last = array.dim(start_dim), array.dim(end_dim)
    return array.reshaped([*array.shape[:first], math.prod(array.shape[first : last + 1]), *array.shape[last + 1 :]])


def _squeezed(array: Array, dim: int | None = None) -> Array:
    gone = set(range(array.ndim)) if dim is None else {array.dim(dim)}
    return array.reshaped([size for at, size in enumerate(array.shape) if not (at in gone and size == 1)])


def _unsqueezed(array: Array, dim: int) -> Array:
    dim = dim % (array.ndim + 1)
    return array.reshaped([*array.shape[:dim], 1, *array.shape[dim:]])


def _transposed(array: Array, dim0: int, dim1: int) -> Array:
    order = list(range(array.ndim))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return array.permuted(order)


def _flipped(array: Array, *dims: Any) -> Array:
    along = {array.dim(at) for at in _sizes(dims)}
    return array.at(tuple(slice(None) for _ in array.shape)) if not along else _turned(array, along)


def _turned(array: Array, along: set[int]) -> Array:
    if 0 in along:
        rows = list(array.rows())[::-1]
        array = stacked(rows) if rows else array
    if along - {0}:
        array = stacked([_turned(row, {at - 1 for at in along - {0}}) for row in array.rows()])
    return array


def _repeated(array: Array, *counts: Any) -> Array:
    sizes = _sizes(counts)
    array = array.reshaped([*(1,) * (len(sizes) - array.ndim), *array.shape])
    for dim, count in enumerate(sizes):
        array = joined([array] * counted(count, LARGEST), dim)
    return array


def _interleaved(array: Array, repeats: int, dim: int | None = None) -> Array:
    array = array if dim is not None else array.reshaped([-1])
    parts = [row for row in _transposed(array, 0, dim or 0).rows() for _ in range(counted(repeats, LARGEST))]
    return _transposed(stacked(parts), 0, dim or 0)


def _lerp(start: Any, end: Any, weight: Any) -> Array:
    return combined(lambda a, b, w: a + w * (b - a), start, end, weight)


def _added(sign: float) -> Callable[..., Array]:
    return lambda a, b, alpha=1: combined(lambda x, y: x + sign * operate(ast.Mult, alpha, y), a, b)


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    def of(*values: Any) -> Any:
        return combined(function, *values) if any(isinstance(v, Array) for v in values) else function(*values)

    return of


def _linspace(start: Any, end: Any, steps: int = 50, endpoint: bool = True, num: int | None = None) -> Array:
    steps = counted(steps if num is None else num, LARGEST)
    gaps = steps - 1 if endpoint else steps
    values = [start + (end - start) * i / gaps if gaps else start for i in range(steps)]
    if endpoint and steps > 1:
        values[-1] = end
    return Array((steps,), [float(value) for value in values])


def _arange(*ends: Any) -> Array:
    start, end, step = (0, ends[0], 1) if len(ends) == 1 else (*ends, 1)[:3]
    count = counted(max(0, math.ceil((end - start) / step - 1e-9)), LARGEST)
    return Array((count,), [start + i * step for i in range(count)])


def _filled(value: Any) -> Callable[..., Array]:
    return lambda *sizes: Array(_sizes(sizes), [value] * counted(math.prod(_sizes(sizes)), LARGEST))


def _meshgrid(*axes: Any, indexing: str = "ij") -> list[Array]:
    if len(axes) != 2 or indexing != "ij":
        raise ValueError("another grid")
    rows, columns = axes
    shape = (rows.shape[0], columns.shape[0])
    return [_unsqueezed(rows, 1).expanded(shape), _unsqueezed(columns, 0).expanded(shape)]


def _padded(rows: Any, batch_first: bool = False, padding_value: Any = 0, padding_side: str = "right") -> Array:
    width = max(row.shape[0] for row in rows)
    fill = [[padding_value] * (width - row.shape[0]) for row in rows]
    turned = padding_side == "left"
    parts = [f + r.values if turned else r.values + f for f, r in zip(fill, rows, strict=True)]
    whole = array_of(parts)
    return whole if batch_first else _transposed(whole, 0, 1)


def _product(a: Array, b: Array) -> Array:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError("no plain matrices")
    columns = list(_transposed(b, 0, 1).rows())
    return array_of([[sum(map(partial(operate, ast.Mult), r.values, c.values)) for c in columns] for r in a.rows()])


def _where(test: Any, yes: Any, no: Any) -> Array:
    return combined(lambda t, a, b: a if t else b, test, yes, no)


METHODS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_SAME, lambda array, *_, **__: array),
    "to": _cast,
    "long": lambda array: array.map(int),
    "int": lambda array: array.map(int),
    "bool": lambda array: array.map(bool),
    "tolist": lambda array: array.nested(),
    "item": lambda array: array.reshaped([]).values[0],
    "numel": lambda array: len(array.values),
    "dim": lambda array: array.ndim,
    "size": lambda array, dim=None: array.shape if dim is None else array.shape[dim],
    "view": lambda array, *sizes: array.reshaped(_sizes(sizes)),
    "reshape": lambda array, *sizes: array.reshaped(_sizes(sizes)),
    "expand": lambda array, *sizes: array.expanded(_sizes(sizes)),
    "permute": lambda array, *order: array.permuted(_sizes(order)),
    "flatten": _flattened,
    "squeeze": _squeezed,
    "unsqueeze": _unsqueezed,
    "transpose": _transposed,
    "t": lambda array: _transposed(array, 0, 1),
    "flip": _flipped,
    "repeat": _repeated,
    "repeat_interleave": _interleaved,
    "unbind": lambda array, dim=0: list(_transposed(array, 0, dim).rows()) if dim else list(array.rows()),
    "clamp": _limited,
    "clip": _limited,
    "clamp_min": lambda array, min: _limited(array, min=min),
    "clamp_max": lambda array, max: _limited(array, max=max),
    "norm": lambda array, p=2, dim=None, keepdim=False: _norm(array, p, dim, keepdim),
    "sum": _sum,
    "mean": _mean,
    "std": _spread,
    "amax": lambda array, dim=None, keepdim=False: array.reduced(dim, keepdim, max),
    "any": lambda array, dim=None, keepdim=False: array.reduced(dim, keepdim, any),
    "all": lambda array, dim=None, keepdim=False: array.reduced(dim, keepdim, all),
    "abs": lambda array: array.map(abs),
    "sqrt": lambda array: array.map(math.sqrt),
    "rsqrt": lambda array: array.map(lambda value: 1 / math.sqrt(value)),
    "square": lambda array: array.map(lambda value: operate(ast.Mult, value, value)),
    "reciprocal": lambda array: array.map(lambda value: 1 / value),
    "neg": lambda array: array.map(lambda value: -value),
    "exp": lambda array: array.map(math.exp),
    "cos": lambda array: array.map(math.cos),
    "sin": lambda array: array.map(math.sin),
    "log": lambda array: array.map(math.log),
    "logical_not": lambda array: array.map(lambda value: not value),
    "pow": _each(partial(operate, ast.Pow)),
    "mul": _each(partial(operate, ast.Mult)),
    "div": _each(lambda a, b: a / b),
    "add": _added(1.0),
    "sub": _added(-1.0),
    "lerp": _lerp,
    "maximum": _each(lambda a, b: a if a >= b else b),
    "minimum": _each(lambda a, b: a if a <= b else b),
    "logical_and": _each(lambda a, b: bool(a) and bool(b)),
    "logical_or": _each(lambda a, b: bool(a) or bool(b)),
    "gt": _each(lambda a, b: a > b),
    "ge": _each(lambda a, b: a >= b),
    "lt": _each(lambda a, b: a < b),
    "le": _each(lambda a, b: a <= b),
    "where": lambda array, test, other: _where(test, array, other),
    "new_zeros": lambda array, *sizes: _filled(0)(*sizes),
    "new_ones": lambda array, *sizes: _filled(1)(*sizes),
    "new_full": lambda array, sizes, value: Array(sizes, [value] * counted(math.prod(sizes), LARGEST)),
    "new_tensor": lambda array, value: array_of(value),
    "matmul": _product,
    "mm": _product,
}
_OF_TORCH: dict[str, Callable[..., Any]] = {
    "linspace": _linspace,
    "arange": _arange,
    "zeros": _filled(0),
    "ones": _filled(1),
    "zeros_like": lambda array: array.map(lambda value: 0),
    "ones_like": lambda array: array.map(lambda value: 1),
    "full_like": lambda array, value: array.map(lambda _: value),
    "full": lambda sizes, value: Array(sizes, [value] * counted(math.prod(sizes), LARGEST)),
    "tensor": lambda value: array_of(value),
    "as_tensor": lambda value: array_of(value),
    "asarray": lambda value: array_of(value),
    "array": lambda value: array_of(value),
    "from_numpy": lambda value: value,
    "concatenate": lambda parts, axis=0: joined(parts, axis),
    "cat": lambda parts, dim=0: joined(parts, dim),
    "stack": lambda parts, dim=0: stacked(parts, dim),
    "where": _where,
    "meshgrid": _meshgrid,
    "outer": lambda a, b: combined(partial(operate, ast.Mult), _unsqueezed(a, 1), _unsqueezed(b, 0)),
    **{name: function for name, function in METHODS.items() if name not in ("to", "where", "size", "type", "data")},
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"torch.{name}": function for name, function in _OF_TORCH.items()},
    **{f"numpy.{name}": function for name, function in _OF_TORCH.items()},
    "torch.linalg.vector_norm": _norm,
    "torch.linalg.norm": _norm,
    "torch.nn.utils.rnn.pad_sequence": _padded,
    **{f"math.{name}": getattr(math, name) for name in ("sqrt", "exp", "log", "floor", "ceil", "prod", "cos", "sin")},
    "math.isqrt": math.isqrt,
    "math.pow": math.pow,
}
NUMBERS: dict[str, float] = {"math.pi": math.pi, "torch.pi": math.pi, "numpy.pi": math.pi, "math.inf": math.inf}
