"""Blank tensors in the place of weights: when a checkpoint is read, saved, or sent to the engine."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.arrivals import LIKE, MADE, NEW, Arrivals, blank
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.key_tables import loading_functions
from scaffold.check.model.package import Package
from scaffold.check.model.reach import reachable
from scaffold.check.model.sides import side_of

# Function, node, and what is wrong there.
Place = tuple[FunctionModel, ast.AST, str]


def blank_weights(package: Package, module: ClassModel) -> Iterator[Place]:
    """Yield blank tensors on the way from the checkpoint, and on the way to a saved one."""
    for function in loading_functions(package):
        if function.file not in package.files:
            continue
        for call in function.calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "get_tensor":
                around = function.file.index.ancestors(call)
                where = Arrivals(function).lost(call)
                if isinstance(where, ast.Attribute) and not _makes(function, where):
                    continue  # a look at the shape, as `get_slice` allows too
                # One rank may read, and the others wait for what it sends.
                if where is not None and not any(
                    "rank" in ast.unparse(n.test) for n in around if isinstance(n, ast.If)
                ):
                    yield function, where, "the parameter gets a blank tensor in the shape of the checkpoint's"
    save = module.method("save_pretrained")
    for function in reachable(save, module) if save is not None and save.file in package.files else ():
        for node in function.nodes(ast.DictComp) if function.file in package.files else ():
            where = _like(function, node.value) if isinstance(node, ast.DictComp) else None
            if where is not None:
                yield function, where, "a blank tensor is saved in the place of the weight"


def _makes(function: FunctionModel, node: ast.AST, hops: int = 2) -> bool:
    """Whether a new tensor is made of an expression, by a name or not."""
    index = function.file.index
    if isinstance(node, ast.Attribute) and node.attr in NEW:
        return True
    for outer in index.ancestors(node):
        if isinstance(outer, ast.Call):
            made = isinstance(outer.func, ast.Attribute) and outer.func.attr in NEW
            if made or function.file.qualified(outer.func) in MADE:
                return True
        if isinstance(outer, ast.Assign) and hops:
            names = {n.id for target in outer.targets for n in index.nodes(ast.Name, target)}
            uses = [n for n in index.nodes(ast.Name, function.node) if n.id in names and isinstance(n.ctx, ast.Load)]
            return any(_makes(function, use, hops - 1) for use in uses)
        if isinstance(outer, ast.stmt):
            return False
    return False


def _like(function: FunctionModel, value: ast.expr) -> ast.expr | None:
    where = blank(function, value)
    named = isinstance(where, ast.Call) and function.file.qualified(where.func) in LIKE
    return where if named else None


def blank_sent(package: Package) -> Iterator[Place]:
    """Yield blank tensors among the pairs that go to the engine's ``load_weights``."""
    side = side_of(package, "rollout")
    loading = [f for adapter in side.adapters if (m := adapter.method("load_weights")) for f in reachable(m, adapter)]
    for function in dict.fromkeys(loading):
        for node in function.file.index.nodes(ast.Yield, function.node) if function.file in package.files else ():
            pair = node.value
            where = _like(function, pair.elts[1]) if isinstance(pair, ast.Tuple) and len(pair.elts) == 2 else None
            if where is not None:
                yield function, where, "the engine gets a blank tensor in the place of the weight"
