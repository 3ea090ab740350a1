"""The role of a value in a loop: its sample, or the schedule's entry of its turn."""

from __future__ import annotations

from scaffold.inspect.program.algebra import options, reach
from scaffold.inspect.program.values import Attr, Call, Choice, Const, Elem, Index, Item, Op, Seq, Slice
from scaffold.source.values import External, Value

SHAPE_METHODS = frozenset(
    [
        "unsqueeze",
        "squeeze",
        "view",
        "reshape",
        "permute",
        "transpose",
        "expand",
        "repeat",
        "flatten",
        "unflatten",
        "movedim",
        "chunk",
        "unbind",
    ]
)
_SCALARS = frozenset(("atan", "arctan", "log", "log2", "exp"))
"""Functions under which a time is still the time of its turn."""
JOINS = frozenset(("cat", "stack", "concat", "concatenate"))


def is_entry(value: Value, loop: int) -> bool:
    """An entry of what the loop runs over, or of a list by the number of the turn."""
    if isinstance(value, Elem):
        return value.loop == loop
    return isinstance(value, Item) and isinstance(value.key, Index) and value.key.loop == loop


def reshaped(value: Call) -> Value | None:
    """The tensor whose entries a call only rearranges."""
    if isinstance(value.func, Attr) and value.name in SHAPE_METHODS:
        return value.func.base
    if value.name == "einsum" and len(value.args) == 2:
        return value.args[1]
    if value.name in (*SHAPE_METHODS, "rearrange") and isinstance(value.func, External) and value.args:
        return value.args[0]
    return None


def without_reshaping(value: Value) -> Value:
    """What a value is made from by rearranging and repeating alone."""
    while isinstance(value, Call) and (inner := reshaped(value)) is not None:
        value = inner
    return value


def is_sample(value: Value, variable: Value) -> bool:
    """Whether a value is the variable itself, reshaped, joined with itself or scaled for the model."""
    for option in options(value):
        node = option
        for _ in range(10):
            if node is variable:
                return True
            if isinstance(node, Call) and (inner := reshaped(node)) is not None:
                node = inner
            elif isinstance(node, Call) and node.name == "scale_model_input" and node.args:
                node = node.args[0]
            elif isinstance(node, Call) and node.name in JOINS and node.args:
                joined = _repeated(node.args[0])
                parts = joined.parts() or [joined]
                if any(is_sample(p, variable) for p in parts[:4]):
                    return True
                break
            elif isinstance(node, Item):
                node = node.base
            elif isinstance(node, Seq) and len(node.items) == 1:
                node = node.items[0]
            elif isinstance(node, Op) and node.op in ("*", "/") and len(node.args) == 2:
                if node.op == "*" and is_sample(node.args[1], variable):
                    return True
                node = node.args[0]
            elif isinstance(node, Choice):
                return any(is_sample(o, variable) for o in node.options)
            else:
                break
    return False


def _repeated(value: Value) -> Value:
    """The list in ``[x] * count``."""
    if isinstance(value, Op) and value.op == "*":
        return next((a for a in value.args if isinstance(a, Seq)), value)
    return value


def is_turn(value: Value, loop: int) -> bool:
    """Whether a value is the schedule's entry of a loop's turn."""
    for option in options(value):
        node: Value = option
        for _ in range(8):
            if isinstance(node, Elem) and node.loop == loop:
                return True
            if isinstance(node, Item) and _counts_turns(node.key, loop):
                return True
            if isinstance(node, Call) and isinstance(node.func, Attr) and node.name in SHAPE_METHODS:
                node = node.func.base
            elif isinstance(node, Call) and node.name in _SCALARS:
                inner_call = node.func.base if isinstance(node.func, Attr) else node.args[0] if node.args else None
                if inner_call is None:
                    break
                node = inner_call
            elif isinstance(node, Call) and node.args and node.name in ("tensor", "full", "full_like", "as_tensor"):
                filled = node.kwargs.get("fill_value", node.args[-1])
                node = filled if node.name.startswith("full") else node.args[0]
            elif isinstance(node, Op) and node.args and node.op in ("*", "/", "//", "+", "-"):
                # 1000σ, t/1000 and 1−t are still the turn's entry, and so is i·dt.
                inner = [a for a in node.args if is_turn(a, loop) or _is_scaled_index(node, a, loop)]
                return len(inner) == 1
            elif node.parts() and type(node).__name__ == "Seq":
                node = node.parts()[0]
            elif isinstance(node, Item):
                node = node.base
            else:
                break
    return False


def _is_scaled_index(product: Op, factor: Value, loop: int) -> bool:
    return product.op in ("*", "/", "//") and is_count(factor, loop)


def is_count(value: Value, loop: int) -> bool:
    """The number of the turn, or a number more or less, as in (i + 0.5)/n."""
    if isinstance(value, Op) and value.op in ("+", "-"):
        return any(is_count(a, loop) for a in value.args) and any(isinstance(a, Const) for a in value.args)
    return isinstance(value, Index) and value.loop == loop


def _counts_turns(key: Value, loop: int) -> bool:
    """Whether the number of the loop's turn is in an index, through arithmetic."""
    inside = reach([key], lambda node: node.parts() if isinstance(node, (Op, Choice, Seq, Slice, Item)) else ())
    return any(isinstance(node, Index) and node.loop == loop for node in inside)
