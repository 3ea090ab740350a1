"""Values of expressions that are plain from the text; everything else is `UNKNOWN`, never a guess."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scaffold.bounded import Budget, TooLargeError, joined, operate

if TYPE_CHECKING:
    from scaffold.check.model.pyfile import PythonFile

DEEPEST = 40
LONGEST = 100_000
MOST = 30_000


class Unknown:
    """The type of `UNKNOWN`."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()

_BINARY = frozenset({ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitOr})
_CONTAINERS: dict[str, Callable[..., Any]] = {
    "tuple": tuple,
    "list": list,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
}


class Descent(NamedTuple):
    """How far below the expression that was asked for one stands, and what is left to spend on it."""

    budget: Budget
    level: int = 0

    def below(self) -> Descent:
        """Return the next level."""
        return Descent(self.budget, self.level + 1)


def known(value: object) -> bool:
    """Whether a value is known to its last element."""
    if value is UNKNOWN:
        return False
    if isinstance(value, dict):
        return all(known(key) and known(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(known(item) for item in value)
    return True


def evaluate(file: PythonFile, node: ast.expr, depth: Descent | None = None) -> Any:
    """Return the value of an expression.

    Literals, containers (with `UNKNOWN` elements where only those are unknown), arithmetic, f-strings, names with
    one assignment in their scope, constants of other modules of the tree, class attributes, ``tuple(…)`` and the like.
    """
    depth = Descent(Budget(MOST, TooLargeError)) if depth is None else depth
    try:
        depth.budget.spend()
        return depth.budget.hold(_evaluate(file, node, depth)) if depth.level <= DEEPEST else UNKNOWN
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, KeyError, IndexError, MemoryError):
        return UNKNOWN


def _evaluate(file: PythonFile, node: ast.expr, depth: Descent) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        items = _items(file, node.elts, depth)
        if items is None:
            return UNKNOWN
        return tuple(items) if isinstance(node, ast.Tuple) else items if isinstance(node, ast.List) else set(items)
    if isinstance(node, ast.Dict):
        return _dict(file, node, depth)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _named(file, node, depth)
    if isinstance(node, ast.UnaryOp):
        return _unary(node.op, evaluate(file, node.operand, depth.below()))
    if isinstance(node, ast.BinOp):
        left, right = evaluate(file, node.left, depth.below()), evaluate(file, node.right, depth.below())
        if left is UNKNOWN or right is UNKNOWN or type(node.op) not in _BINARY:
            return UNKNOWN
        if isinstance(node.op, ast.Mult) and not all(isinstance(side, (int, float)) for side in (left, right)):
            return UNKNOWN  # a repeated string may be as long as it likes
        if isinstance(node.op, ast.Mod) and isinstance(left, str):
            return UNKNOWN
        value = operate(type(node.op), left, right)
        return UNKNOWN if isinstance(value, (str, list, tuple)) and len(value) > LONGEST else value
    if isinstance(node, ast.JoinedStr):
        parts = [_text(file, part, depth) for part in node.values]
        return joined(parts) if all(part is not UNKNOWN for part in parts) else UNKNOWN
    if isinstance(node, ast.Subscript):
        whole, key = evaluate(file, node.value, depth.below()), evaluate(file, node.slice, depth.below())
        return UNKNOWN if whole is UNKNOWN or key is UNKNOWN else whole[key]
    if isinstance(node, ast.Call):
        return _called(file, node, depth)
    if isinstance(node, ast.IfExp):
        test = evaluate(file, node.test, depth.below())
        return UNKNOWN if test is UNKNOWN else evaluate(file, node.body if test else node.orelse, depth.below())
    return UNKNOWN


def _items(file: PythonFile, nodes: list[ast.expr], depth: Descent) -> list[Any] | None:
    items: list[Any] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            inner = evaluate(file, node.value, depth.below())
            if not isinstance(inner, (list, tuple)):
                return None
            items += inner
        else:
            items.append(evaluate(file, node, depth.below()))
    return items


def _dict(file: PythonFile, node: ast.Dict, depth: Descent) -> Any:
    found: dict[Any, Any] = {}
    for key, item in zip(node.keys, node.values, strict=True):
        value = evaluate(file, item, depth.below())
        if key is None:
            if not isinstance(value, dict):
                return UNKNOWN
            found.update(value)
            continue
        name = evaluate(file, key, depth.below())
        if name is UNKNOWN:
            return UNKNOWN
        found[name] = value
    return found


def _named(file: PythonFile, node: ast.Name | ast.Attribute, depth: Descent) -> Any:
    project = file.project
    if isinstance(node, ast.Name):
        bindings = file.scopes.lookup(node.id, node)
        if len(bindings) == 1 and bindings[0].kind == "variable" and bindings[0].value is not None:
            if node.id in project.changed_names(file):
                return UNKNOWN
            return evaluate(file, bindings[0].value, depth.below())
        if bindings and bindings[0].kind != "import":
            return UNKNOWN
    elif isinstance(node.value, ast.Name):
        owner = file.function_around(node)
        if owner is not None and owner.cls is not None and node.value.id == owner.bound:
            return UNKNOWN if owner.cls.instance_attributes(node.attr) else _class_value(owner.cls, node.attr, depth)
        cls = project.class_of(file, node.value)
        if cls is not None:
            return _class_value(cls, node.attr, depth)
    name = project.qualified(file, node)
    found = project.definition(name) if name is not None else None
    if found is None:
        return UNKNOWN
    other, binding = found
    if binding.kind != "variable" or binding.value is None:
        return UNKNOWN
    # Something may be put into the container after its definition.
    if any(name in project.changed_names(other) for name, bound in other.names.items() if binding in bound):
        return UNKNOWN
    return evaluate(other, binding.value, depth.below())


def _class_value(cls: Any, name: str, depth: Descent) -> Any:
    attribute = cls.attribute(name)
    if attribute is None or attribute.value is None:
        return UNKNOWN
    return evaluate(attribute.file, attribute.value, depth.below())


def _unary(op: ast.unaryop, value: Any) -> Any:
    if value is UNKNOWN:
        return UNKNOWN
    if isinstance(op, ast.Not):
        return not value
    if isinstance(op, ast.USub):
        return -value
    return +value if isinstance(op, ast.UAdd) else UNKNOWN


def _text(file: PythonFile, node: ast.expr, depth: Descent) -> Any:
    if isinstance(node, ast.FormattedValue):
        value = evaluate(file, node.value, depth.below())
        plain = node.format_spec is None and node.conversion == -1
        return str(value) if plain and isinstance(value, (str, int)) else UNKNOWN
    return evaluate(file, node, depth.below())


def _called(file: PythonFile, node: ast.Call, depth: Descent) -> Any:
    name = file.qualified(node.func)
    if name not in _CONTAINERS:
        return UNKNOWN
    if name == "dict" and node.keywords and not node.args:
        if any(keyword.arg is None for keyword in node.keywords):
            return UNKNOWN
        return {keyword.arg: evaluate(file, keyword.value, depth.below()) for keyword in node.keywords}
    if node.keywords or len(node.args) > 1:
        return UNKNOWN
    values = [evaluate(file, argument, depth.below()) for argument in node.args]
    return (
        UNKNOWN if any(value is UNKNOWN or isinstance(value, str) for value in values) else _CONTAINERS[name](*values)
    )
