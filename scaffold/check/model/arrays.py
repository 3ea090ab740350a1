"""Small tensors of plain numbers, for working out what arithmetic in a text amounts to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

from scaffold.bounded import counted

LARGEST = 4096


class Array:
    """A tensor: flat values in row-major order.

    Args:
        shape: its sizes; ``()`` for a single number.
        values: as many numbers or flags.

    Raises:
        ValueError: it is too large to work with, or the count does not fit.
    """

    __slots__ = ("shape", "values")

    def __init__(self, shape: Sequence[int], values: Iterable[Any]) -> None:
        self.shape, self.values = tuple(shape), list(values)
        if len(self.values) > LARGEST or prod(self.shape) != len(self.values):
            raise ValueError("not the values of this shape")

    def __repr__(self) -> str:
        return f"Array({self.shape}, {self.values})"

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def strides(self) -> tuple[int, ...]:
        """Distance of neighbours in each dimension."""
        found, step = [], 1
        for size in reversed(self.shape):
            found.append(step)
            step *= size
        return tuple(reversed(found))

    def map(self, function: Callable[[Any], Any]) -> Array:
        """Return ``function`` of every element."""
        return Array(self.shape, map(function, self.values))

    def dim(self, at: int) -> int:
        """Return a dimension counted from the front.

        Raises:
            IndexError: there is no such dimension.
        """
        if not -self.ndim <= at < self.ndim:
            raise IndexError(at)
        return at % self.ndim

    def nested(self) -> Any:
        """Return nested lists, as ``tolist`` does."""
        if not self.shape:
            return self.values[0]
        return [row.nested() for row in self.rows()]

    def rows(self) -> Iterator[Array]:
        """Yield the entries of the first dimension."""
        size = prod(self.shape[1:])
        for at in range(self.shape[0]):
            yield Array(self.shape[1:], self.values[at * size : (at + 1) * size])

    def reshaped(self, sizes: Sequence[int]) -> Array:
        """Return the same values in another shape; one size may be -1."""
        sizes = list(sizes)
        if -1 in sizes:
            rest = prod(size for size in sizes if size != -1)
            sizes[sizes.index(-1)] = len(self.values) // rest if rest else 0
        return Array(sizes, self.values)

    def permuted(self, order: Sequence[int]) -> Array:
        """Return the dimensions in another order."""
        order = [self.dim(at) for at in order]
        if sorted(order) != list(range(self.ndim)):
            raise ValueError("no order of the dimensions")
        strides, shape = self.strides(), [self.shape[at] for at in order]
        places = product(*(range(size) for size in shape))
        values = (self.values[sum(p * strides[at] for p, at in zip(place, order, strict=True))] for place in places)
        return Array(shape, values)

    def expanded(self, shape: Sequence[int]) -> Array:
        """Return the array broadcast to a shape; -1 keeps a size."""
        lead = len(shape) - self.ndim
        if lead < 0:
            raise ValueError("fewer dimensions than there are")
        own = (1,) * lead + self.shape
        shape = [mine if size == -1 else size for mine, size in zip(own, shape, strict=True)]
        if any(mine not in (1, size) for mine, size in zip(own, shape, strict=True)):
            raise ValueError("not a shape to broadcast to")
        if tuple(shape) == self.shape:
            return self
        if len(self.values) == 1:
            return Array(shape, self.values * counted(prod(shape), LARGEST))
        strides = [0 if size == 1 else step for size, step in zip(own, (0,) * lead + self.strides(), strict=True)]
        counted(prod(shape), LARGEST)
        offsets = [0]
        for size, step in zip(shape, strides, strict=True):
            offsets = [before + step * at for before in offsets for at in range(size)]
        return Array(shape, [self.values[at] for at in offsets])

    def reduced(self, dims: Any, keepdim: bool, function: Callable[[list[Any]], Any]) -> Array:
        """Return ``function`` of the elements along dimensions; of all where ``dims`` is None."""
        every = range(self.ndim) if dims is None else [dims] if isinstance(dims, int) else dims
        along = {self.dim(at) for at in every}
        kept = [at for at in range(self.ndim) if at not in along]
        moved = self.permuted([*kept, *sorted(along)])
        size = prod(self.shape[at] for at in along)
        groups = (moved.values[at : at + size] for at in range(0, len(moved.values), size)) if size else ()
        shape = [1 if at in along else n for at, n in enumerate(self.shape) if keepdim or at not in along]
        return Array(shape, [function(group) for group in groups])

    def at(self, key: Any) -> Array:
        """Return ``array[key]``: integers, slices, None, an ellipsis, one array of flags or indices in front.

        Raises:
            TypeError: another key.
        """
        keys = list(key) if isinstance(key, tuple) else [key]
        if len(keys) == 1 and isinstance(keys[0], Array) and keys[0].ndim == 1:
            rows, chosen = list(self.rows()), keys[0].values
            flags = bool(chosen) and all(isinstance(item, bool) for item in chosen)
            if flags and len(rows) != len(chosen):
                raise IndexError("flags of another number of rows")
            picked = (
                [row for row, flag in zip(rows, chosen, strict=True) if flag] if flags else [rows[i] for i in chosen]
            )
            return stacked(picked) if picked else Array((0, *self.shape[1:]), ())
        used = sum(1 for item in keys if item is not None and item is not Ellipsis)
        if Ellipsis in [item for item in keys if not isinstance(item, Array)]:
            at = next(i for i, item in enumerate(keys) if item is Ellipsis)
            keys[at : at + 1] = [slice(None)] * (self.ndim - used)
        offsets, shape, dim, strides = [0], [], 0, self.strides()
        for item in keys:
            if item is None:
                shape.append(1)
                continue
            size, step = self.shape[dim], strides[dim]
            if isinstance(item, Array) and not item.shape:
                item = item.values[0]
            if isinstance(item, slice):
                places = range(size)[item]
                shape.append(len(places))
            elif isinstance(item, int) and not isinstance(item, bool) and -size <= item < size:
                places = range(item % size, item % size + 1)
            else:
                raise TypeError("no plain key")
            offsets = [before + step * place for before in offsets for place in places]
            dim += 1
        for size, step in zip(self.shape[dim:], strides[dim:], strict=True):
            shape.append(size)
            offsets = [before + step * place for before in offsets for place in range(size)]
        return Array(shape, [self.values[at] for at in offsets])


def array_of(value: Any) -> Array:
    """Return nested lists, numbers or an array as an array.

    Raises:
        TypeError: it holds something else.
    """
    if isinstance(value, Array):
        return value
    if isinstance(value, (bool, int, float)):
        return Array((), [value])
    if isinstance(value, (list, tuple, range)):
        parts = [array_of(item) for item in value]
        return stacked(parts) if parts else Array((0,), ())
    raise TypeError("no numbers")


def stacked(parts: Sequence[Array], dim: int = 0) -> Array:
    """Return arrays of one shape along a new dimension."""
    if any(part.shape != parts[0].shape for part in parts):
        raise ValueError("arrays of different shapes")
    whole = Array((len(parts), *parts[0].shape), [value for part in parts for value in part.values])
    dim %= whole.ndim
    return whole if dim == 0 else whole.permuted([*range(1, dim + 1), 0, *range(dim + 1, whole.ndim)])


def joined(parts: Sequence[Array], dim: int = 0) -> Array:
    """Return arrays one behind the other along a dimension."""
    dim = parts[0].dim(dim)
    order = [dim, *(at for at in range(parts[0].ndim) if at != dim)]
    moved = [part.permuted(order) for part in parts]
    if any(part.shape[1:] != moved[0].shape[1:] for part in moved):
        raise ValueError("arrays of different shapes")
    size = sum(part.shape[0] for part in moved)
    whole = Array((size, *moved[0].shape[1:]), [value for part in moved for value in part.values])
    return whole.permuted([order.index(at) for at in range(whole.ndim)])


def combined(function: Callable[..., Any], *parts: Any) -> Array:
    """Return ``function`` of broadcast arrays, element by element."""
    arrays = [array_of(part) for part in parts]
    ndim = max(array.ndim for array in arrays)
    padded = [(1,) * (ndim - array.ndim) + array.shape for array in arrays]
    shape = [next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True)]
    columns = [array.expanded(shape).values for array in arrays]
    return Array(shape, [function(*row) for row in zip(*columns, strict=True)])
