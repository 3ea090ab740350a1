"""Finds the role of each size of a model from parameter shapes on the meta device, and matching small sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from scaffold.verify.measured import NotDrivableError

MAX_PARAMETERS = 5_000_000
Shapes = dict[str, tuple[int, ...]]
VOCABULARY, LAYERS, HEADS, GROUPS, SIDE = 96, 2, 4, 2, 8
# Sizes differ from each other on purpose, so that one taken for another does not fit.
WIDTHS = (32, 48, 40, 56, 24, 72, 80, 88, 104, 112)


class Role(Enum):
    """What a size does."""

    depth = "how many layers there are"
    rows = "rows of a table, such as a vocabulary"
    side = "a table has its square of rows"
    width = "a dimension of that size"
    factor = "dimensions are multiples of it"
    divisor = "dimensions shrink with it, or it divides one without showing"
    none = "nothing that shapes show"


def shapes(module: Any) -> Shapes:
    """Names and shapes of its parameters."""
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def count(found: Shapes) -> int:
    """Parameters."""
    return sum(torch.Size(shape).numel() for shape in found.values())


class _Unfilled(TorchFunctionMode):
    """Leaves parameters as they are: on the meta device there is nothing to fill, and it takes most of the time."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init" and (args or "tensor" in kwargs):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def on_meta(build: Callable[[], Any]) -> Shapes:
    """Shapes of what ``build`` makes; nothing of the parameters is allocated."""
    with torch.device("meta"), _Unfilled():
        return shapes(build())


class Sizes:
    """The integers that a model is built from.

    Args:
        values: integers by name.
        build: makes the module of other values.
        guessed: names of those that nobody has chosen: they stand there until their role is known.
    """

    def __init__(
        self,
        values: Mapping[Any, int],
        build: Callable[[dict[Any, int]], Any],
        guessed: Collection[Any] = (),
    ) -> None:
        self.values, self._build, self.guessed = dict(values), build, tuple(guessed)
        self._known: dict[tuple[tuple[Any, int], ...], Shapes] = {}

    def copy(self) -> Sizes:
        """Return the same, whose values may be set apart."""
        copied = Sizes(self.values, self._build, self.guessed)
        copied._known = self._known
        return copied

    def shapes(self) -> Shapes:
        """Shapes of the values as they are."""
        return self.shapes_with({})

    def shapes_with(self, others: Mapping[Any, int]) -> Shapes:
        """Shapes with some other values; what the constructor raises comes through."""
        values = {**self.values, **others}
        asked = tuple(values.items())
        if asked not in self._known:
            self._known[asked] = on_meta(partial(self._build, values))
        return self._known[asked]

    def changed(self, name: Any, value: int) -> Shapes | None:
        """Shapes with one other value; None where the constructor refuses it."""
        try:
            return self.shapes_with({name: value})
        except Exception:
            return None

    def role(self, name: Any) -> Role:
        """What one size does, told by shapes with two, three or half of it."""
        value, base = self.values[name], self.shapes()
        if value < 2:
            return Role.none
        for times, other in ((2.0, 2 * value), (3.0, 3 * value), (0.5, value // 2)):
            found = None if other == value else self.changed(name, other)
            if found is not None and not any(0 in shape for shape in found.values()):
                others = [size for other, size in self.values.items() if other != name and size >= value]
                return _role(base, found, value, times, others, name in self.guessed)
        return Role.none


def _role(base: Shapes, found: Shapes, value: int, times: float, others: list[int], guessed: bool) -> Role:
    if base.keys() != found.keys():
        return Role.depth
    moved = [
        (name, axis, one, other)
        for name, shape in base.items()
        if len(shape) == len(found[name])
        for axis, (one, other) in enumerate(zip(shape, found[name], strict=True))
        if one != other
    ]
    if not moved:
        return Role.divisor if value <= 256 and any(size % value == 0 for size in others) else Role.none
    if all((other < one) == (times > 1) for _, _, one, other in moved):
        return Role.divisor
    tables = {name for name, axis, *_ in moved if axis == 0 and len(base[name]) == 2}
    only_rows = all(axis == 0 and name in tables for name, axis, *_ in moved) and len(moved) <= 2
    if only_rows and all(one == value * value for *_, one, _ in moved):
        return Role.side
    if only_rows and (guessed or value >= VOCABULARY) and all(one == value for *_, one, _ in moved):
        return Role.rows
    return Role.width if any(one == value for *_, one, _ in moved) else Role.factor


def proposals(sizes: Sizes) -> Iterator[dict[Any, int]]:
    """Small values, likeliest first; each has all sizes, and some may not fit together."""
    small = _settled(sizes)
    roles = {name: small.role(name) for name in small.values}
    widths = sorted(
        (name for name, role in roles.items() if role is Role.width),
        key=lambda name: -_weight(small, name),
    )
    factors = [name for name, role in roles.items() if role is Role.factor]
    heads = [sizes.values[name] for name, value in small.values.items() if value == HEADS != sizes.values[name]]
    grouped = {name for name in factors if any(many % sizes.values[name] == 0 for many in heads)}
    grouped -= {name for name in factors if sizes.values[name] in heads}
    for scale, few, kept, products in itertools.product((1, 2, 4), (GROUPS, HEADS), (True, False), (False, True)):
        values = dict(small.values)
        tied: dict[Any, int] = {}  # sizes that were equal stay so
        for name in widths:
            before = name if name in sizes.guessed else sizes.values[name]
            if isinstance(before, int) and before <= WIDTHS[0]:
                continue
            tied.setdefault(before, WIDTHS[min(len(tied), len(WIDTHS) - 1)] * scale)
            values[name] = tied[before]
        for name in factors:
            # The side of a patch or the channels of a latent stay: sizes of images may hang on them.
            if name in grouped or name in sizes.guessed or not kept or values[name] > WIDTHS[0]:
                values[name] = min(values[name], few)
        for whole, one, other in _products(sizes, roles) if products else ():
            values[one] = min(values[one], HEADS)
            values[other] = values[whole] // values[one]
        yield values
    # All of it smaller by one factor, as far as it divides.
    for divisor in (64, 32, 16, 8):
        yield {
            **small.values,
            **{name: max(2, sizes.values[name] // divisor) for name in (*widths, *factors) if sizes.values[name] > 16},
        }
    yield dict(small.values)


def _settled(sizes: Sizes) -> Sizes:
    """Those that need no choice made small: layers, rows of tables, numbers of heads."""
    found = sizes.copy()
    roles: dict[Any, Role] = {}  # a role that shows stays when others are made small
    # Models of few layers are built fast, so what is called so is looked at first.
    names = sorted(found.values, key=lambda name: "layer" not in str(name))
    for wanted, value in ((Role.depth, LAYERS), (Role.divisor, HEADS), (Role.side, SIDE), (Role.rows, VOCABULARY)):
        for name in names:
            if found.values[name] <= value and not (wanted is Role.rows and name in found.guessed):
                continue
            if roles.get(name, Role.none) is Role.none:
                roles[name] = found.role(name)
            if roles[name] is wanted and found.changed(name, value) is not None:
                found.values[name] = value
    for name in found.guessed:
        if found.role(name) is Role.none:
            found.values |= _beside(found, name)
    return found


def _beside(sizes: Sizes, name: Any) -> dict[Any, int]:
    """A number of heads for a guess that says nothing, if need be with another guess that must divide it."""
    for other in (name, *(other for other in sizes.guessed if other != name)):
        values = {other: GROUPS, name: HEADS}
        try:
            found = sizes.shapes_with(values)
        except Exception:
            continue
        if not any(0 in shape for shape in found.values()):
            return values
    return {}


def _weight(sizes: Sizes, name: Any) -> int:
    """Return how many parameters are added when one size is doubled."""
    found = sizes.changed(name, 2 * sizes.values[name])
    return 0 if found is None else count(found)


def _products(sizes: Sizes, roles: Mapping[Any, Role]) -> Iterator[tuple[Any, Any, Any]]:
    """Widths that are the product of two other sizes: heads times the width of a head."""
    shown = {name: value for name, value in sizes.values.items() if value > 1 and roles[name] is not Role.none}
    for whole, value in shown.items():
        for one, left in shown.items():
            for other, right in shown.items():
                if left <= right and len({whole, one, other}) == 3 and left * right == value and left > 2:
                    yield whole, one, other


def refuse_large(found: Shapes, sizes: Sizes, option: str) -> None:
    """Raise where a model is too large to be built.

    Raises:
        NotDrivableError: the message names the size that most hangs on, and what sets it.
    """
    total = count(found)
    if total <= MAX_PARAMETERS:
        return
    weights = {name: weight for name in sizes.values if (weight := _weight(sizes, name)) > total}
    most = max(weights, key=lambda name: weights[name], default=None)
    told = f"the smallest model that was found has {total:,} parameters, at most {MAX_PARAMETERS:,} are built"
    field = "; nothing that the package reads of a checkpoint sets its sizes"
    if most is not None:
        field = f"; most of it hangs on {str(most).replace(':.', ' ')} = {sizes.values[most]}"
    raise NotDrivableError(f"{told}{field}; {option}")
