"""With which factor a rollout adapter folds a LoRA update into the engine's weights, worked out for small numbers."""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.worked_out import OPAQUE, Bound, NotPlainError, RefusedError, Stub, Worked

HOOK = "map_lora_update_to_engine"
RANK, ALPHA = 4, 13
PLAIN = ALPHA / RANK
_PLAIN_UPDATE = {
    "r": RANK,
    "lora_alpha": ALPHA,
    "use_rslora": False,
    "use_dora": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "lora_dropout": 0.0,
    "bias": "none",
    "fan_in_fan_out": False,
    "target_modules": ["q_proj"],
}
_ADDING = {"add", "add_", "addmm", "addmm_", "baddbmm", "sub", "sub_"}
_PRODUCT = {"matmul", "mm", "bmm", "einsum", "__matmul__"}


@dataclass
class Fold:
    """What became of the two matrices.

    Attributes:
        factors: factor of ``up @ down`` where it is added to a weight, with the node.
        products: products that nothing was done with yet.
        exchanged: products of the first matrix with the second, which do not fit: the update is ``B A``.
    """

    factors: list[tuple[float, ast.AST]] = field(default_factory=list)
    products: dict[_Part, ast.AST] = field(default_factory=dict)
    exchanged: list[ast.AST] = field(default_factory=list)


class _Part:
    """A tensor that is a factor times a LoRA matrix, or times the product of both.

    Args:
        fold: where sums are noted.
        factor: known factor.
        matrices: how many of the two matrices are in it.
        node: where it is made; None for what is given.
        side: ``A`` or ``B`` where it is one of the two, as it is or scaled.
    """

    def __init__(self, fold: Fold, factor: float, matrices: int, node: ast.AST | None = None, side: str = "") -> None:
        self.fold, self.factor, self.matrices, self.side = fold, factor, matrices, side
        if matrices == 2 and node is not None:
            fold.products[self] = node

    def lost(self) -> None:
        """Note that something is done with it."""
        self.fold.products.pop(self, None)

    def scaled(self, by: float, node: ast.AST) -> _Part:
        self.lost()
        return _Part(self.fold, self.factor * by, self.matrices, node, self.side)

    def times(self, other: _Part, node: ast.AST) -> _Part:
        """Return the product with another one, this one first."""
        if self.side == "A" and other.side == "B":
            self.fold.exchanged.append(node)
        return _Part(self.fold, self.factor * other.factor, self.matrices + other.matrices, node)

    def combine(self, op: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
        """Return what an operator makes of it."""
        other = right if left is self else left
        if isinstance(op, ast.MatMult) and isinstance(other, _Part):
            return self.times(other, node) if left is self else other.times(self, node)
        if isinstance(op, ast.Mult) and isinstance(other, (int, float)):
            return self.scaled(other, node)
        if isinstance(op, ast.Div) and left is self and isinstance(other, (int, float)) and other:
            return self.scaled(1 / other, node)
        self.lost()
        if isinstance(op, (ast.Add, ast.Sub)) and other is OPAQUE and self.matrices == 2:
            sign = -1.0 if isinstance(op, ast.Sub) else 1.0
            self.fold.factors.append((sign * self.factor, node))
        return OPAQUE

    def called(self, node: ast.Call, name: str, values: list[Any], options: dict[str, Any]) -> Any:
        """Return what a method of it answers."""
        if name in ("matmul", "mm", "bmm") and len(values) == 1 and isinstance(values[0], _Part):
            return self.times(values[0], node)
        if name in ("mul", "mul_", "div", "div_") and len(values) == 1 and isinstance(values[0], (int, float)):
            return self.scaled(values[0] if name.startswith("mul") else 1 / values[0], node)
        if name in ("to", "float", "double", "cpu", "clone", "detach", "contiguous", "bfloat16", "type", "cuda"):
            return self
        self.lost()
        return OPAQUE

    def given_to(self, node: ast.Call, name: str, values: list[Any], options: dict[str, Any]) -> Any:
        """Return what a method of a weight, or a function, makes of it."""
        parts = [value for value in (*values, *options.values()) if isinstance(value, _Part)]
        alpha, matrices = options.get("alpha", 1), sum(part.matrices for part in parts)
        product = prod(part.factor for part in parts)
        ordered = name != "einsum" and len(parts) == 2 and [part for part in values if isinstance(part, _Part)] == parts
        if ordered and name in _PRODUCT | _ADDING and parts[0].side == "A" and parts[1].side == "B":
            self.fold.exchanged.append(node)
        if name in _PRODUCT and matrices == 2 and len(parts) == 2:
            return _Part(self.fold, product, 2, node)
        for part in parts:
            part.lost()
        known = isinstance(alpha, (int, float)) and options.get("beta", 1) == 1
        if name in _ADDING and matrices == 2 and known and len(parts) == (2 if "mm" in name else 1):
            self.fold.factors.append((product * alpha * (-1 if name.startswith("sub") else 1), node))
        return OPAQUE


class WorkedFold(NamedTuple):
    """A product of both matrices that is added to a weight or handed on.

    Attributes:
        factor: what it is multiplied with.
        function, node: where.
    """

    factor: float
    function: FunctionModel
    node: ast.AST


class Work(NamedTuple):
    """What a hook did with an update of rank `RANK` with ``lora_alpha`` `ALPHA`."""

    fold: Fold
    entered: tuple[FunctionModel, ...]

    def function_of(self, node: ast.AST) -> FunctionModel | None:
        """Return the function that a node stands in."""
        return next((f for f in self.entered if node in f.nodes(type(node))), None)


def worked_folds(adapter: ClassModel) -> list[WorkedFold]:
    """Return the products that are added to a weight, or handed on with a factor.

    What cannot be worked out is left out.
    """
    work = _work(adapter)
    if work is None:
        return []
    # A product that is handed on as it is may be scaled later.
    handed_on = [(part.factor, node) for part, node in work.fold.products.items() if part.factor != 1.0]
    found = []
    for factor, node in (*work.fold.factors, *handed_on):
        function = work.function_of(node)
        if function is not None:
            found.append(WorkedFold(factor, function, node))
    return found


def exchanged_matrices(adapter: ClassModel) -> list[tuple[FunctionModel, ast.AST]]:
    """Return where the two matrices of an update are multiplied in the wrong order."""
    work = _work(adapter)
    nodes = list(dict.fromkeys(work.fold.exchanged)) if work is not None else []
    return [(function, node) for node in nodes if work and (function := work.function_of(node)) is not None]


@lru_cache(maxsize=16)
def _work(adapter: ClassModel) -> Work | None:
    hook = adapter.method(HOOK)
    if hook is None or hook.is_abstract or len(hook.positional) != 2:
        return None
    fold = Fold()
    name = "transformer.layers.0.self_attn.q_proj"
    tensors = {f"{name}.lora_{side}.weight": _Part(fold, 1.0, 1, side=side) for side in "AB"}
    work = Worked({"load_weights": lambda *_, **__: OPAQUE}, lenient=True)
    with suppress(NotPlainError, RefusedError):  # what was added until then was added
        work.call(Bound(hook, Stub({}, cls=adapter), adapter), tensors, dict(_PLAIN_UPDATE))
    return Work(fold, tuple(work.entered))
