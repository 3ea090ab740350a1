"""The renormalisation of guided velocities, compared with what ``scaffold.toml`` records of the pipeline's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.calls import argument, bind, has_unpacking
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded, recorded_float, recorded_list
from scaffold.check.model.sides import Side

_SECTION = "cfg"
_AT_MOST_ONE = {"text_channel", "channel", "global"}
_KEPT = ("to", "float", "type_as", "unsqueeze", "squeeze", "view", "reshape", "expand", "detach")
_NORMS = ("torch.linalg.vector_norm", "torch.linalg.norm", "torch.norm")


def other_renorms(package: Package, side: Side) -> Iterator[tuple[FunctionModel, ast.expr, str]]:
    """Yield where training limits, guards or names a renormalisation in another way, with what is wrong.

    Factors are ``norm of conditional / (norm of guided + epsilon)``. Their limit is known of the kinds that never
    amplify; of a pipeline with any other kind it is not compared.
    """
    names = recorded_list(package, _SECTION, "renorms")
    if not names:
        return
    epsilon = recorded_float(package, _SECTION, "epsilon")
    limit = 1.0 if {*names} <= _AT_MOST_ONE else None
    kind = recorded(package, _SECTION, "renorm_type")
    for function in side.functions:
        if function.file not in package.files:
            continue
        for quotient in function.file.index.nodes(ast.BinOp, function.node):
            if isinstance(quotient.op, ast.Div) and _is_norm(function, quotient.left):
                yield from _limits(function, quotient, limit)
                yield from _guard(function, quotient, epsilon)
        yield from _whole(side, function)
        for node in function.file.index.nodes(ast.Compare, function.node):
            text = node.comparators[0]
            if isinstance(node.ops[0], ast.Eq) and isinstance(text, ast.Constant) and isinstance(text.value, str):
                if text.value not in names and kind is not None and _reads(function, node.left, kind):
                    yield function, text, f"the pipeline has no renormalisation {text.value!r}: {', '.join(names)}"


def _whole(side: Side, function: FunctionModel) -> Iterator[tuple[FunctionModel, ast.expr, str]]:
    """Look for one norm of all samples of a micro-batch, in functions that divide norms."""
    index = function.file.index
    divides = any(
        isinstance(n.op, ast.Div) and _is_norm(function, n.left) for n in index.nodes(ast.BinOp, function.node)
    )
    text = "one norm for all samples of the micro-batch; each sample has its own in the rollout"
    for call in function.calls if divides else ():
        looped = any(isinstance(n, (ast.For, ast.comprehension, ast.ListComp)) for n in index.ancestors(call))
        if not _is_norm(function, call) or has_unpacking(call) or looped:
            continue
        ours = function.file.qualified(call.func) in _NORMS
        dim = argument(call, "dim", 2 if ours else 1)
        if dim is None or (isinstance(dim, ast.Constant) and dim.value is None):
            yield function, call, text
        default = function.default(dim.id) if isinstance(dim, ast.Name) else None
        if not isinstance(dim, ast.Name) or not (isinstance(default, ast.Constant) and default.value is None):
            continue
        rebound = any(name == dim.id for name, _ in function.assignments)
        for caller, other in side.callers.get(function, []) if not rebound else ():
            if dim.id not in bind(other, function) and not has_unpacking(other) and call is _first_norm(function):
                yield caller, other, text


def _first_norm(function: FunctionModel) -> ast.Call | None:
    return next((call for call in function.calls if _is_norm(function, call)), None)


def _is_norm(function: FunctionModel, expr: ast.expr) -> bool:
    """Whether an expression is a norm: a call that says so, or a name for one."""
    if isinstance(expr, ast.Name):
        values = [binding.value for binding in reaching(function, expr)]
        return bool(values) and all(value is not None and _is_norm(function, value) for value in values)
    name = function.file.qualified(expr.func) or ast.unparse(expr.func) if isinstance(expr, ast.Call) else ""
    return name.rpartition(".")[2] in ("norm", "vector_norm")


def _limits(
    function: FunctionModel, quotient: ast.BinOp, limit: float | None
) -> Iterator[tuple[FunctionModel, ast.expr, str]]:
    """Look at the call that limits a factor, where nothing else may limit it afterwards."""
    index = function.file.index
    above = index.parent(quotient)
    call = index.parent(above) if isinstance(above, ast.Attribute) else above
    name = above.attr if isinstance(above, ast.Attribute) else function.file.qualified(getattr(call, "func", quotient))
    if not isinstance(call, ast.Call) or name not in ("clamp", "clip", "clamp_min", "torch.clamp", "torch.clip"):
        return
    if limit is None or not _multiplies(function, call, 0):
        return
    behind = 0 if isinstance(above, ast.Attribute) else 1
    most = argument(call, "max", behind + 1)
    value = function.file.value(most) if most is not None else None
    if most is None or value is None:
        yield function, call, f"this factor may be above {limit:g}, the pipeline's is not"
    elif isinstance(value, (int, float)) and value != limit:
        yield function, most, f"this factor may be {value}, the pipeline's is {limit:g} at most"


def _multiplies(function: FunctionModel, expr: ast.expr, depth: int) -> bool:
    """Whether a value goes into products as it is: converted or with other dimensions, by a name or not."""
    index = function.file.index
    node: ast.AST = expr
    for _ in range(20):
        above = index.parent(node)
        if isinstance(above, ast.BinOp):
            return isinstance(above.op, ast.Mult)
        if isinstance(above, ast.AugAssign):
            return isinstance(above.op, ast.Mult) and above.value is node
        if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name) and depth < 4:
            target = above.targets[0]
            uses = [
                name
                for name in index.nodes(ast.Name, function.node)
                if name.id == target.id and isinstance(name.ctx, ast.Load)
                if any(binding.node is target for binding in reaching(function, name))
            ]
            return bool(uses) and all(_multiplies(function, use, depth + 1) for use in uses)
        kept = isinstance(above, ast.Attribute) and above.attr in _KEPT
        if (
            not kept
            and not (isinstance(above, ast.Call) and above.func is node)
            and not isinstance(above, ast.Subscript)
        ):
            return False
        assert above is not None
        node = above
    return False


def _guard(
    function: FunctionModel, quotient: ast.BinOp, epsilon: float | None
) -> Iterator[tuple[FunctionModel, ast.expr, str]]:
    """Look at the number that keeps the quotient from dividing by zero."""
    below = quotient.right
    if epsilon is None or not isinstance(below, ast.BinOp) or not isinstance(below.op, ast.Add):
        return
    for number in (below.left, below.right):
        value = function.file.value(number)
        if isinstance(value, (int, float)) and value != epsilon:
            yield function, number, f"{value:g} is added here, the pipeline adds {epsilon:g}"


def _reads(function: FunctionModel, expr: ast.expr, key: str) -> bool:
    """Whether an expression is the entry of that name in something."""
    if isinstance(expr, ast.Name):
        for binding in reaching(function, expr):
            value = binding.value
            parent = function.file.index.parent(binding.node)
            statement = function.file.index.parent(parent) if isinstance(parent, ast.Tuple) else None
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple):
                assert isinstance(parent, ast.Tuple)
                at = next((i for i, item in enumerate(parent.elts) if item is binding.node), -1)
                value = statement.value.elts[at] if 0 <= at < len(statement.value.elts) else None
            if value is not None and _reads(function, value, key):
                return True
        return False
    return isinstance(expr, ast.Subscript) and function.file.value(expr.slice) == key
