"""Whether a module has a part in every case: built without a condition, and not replaced afterwards."""

from __future__ import annotations

import ast
from functools import lru_cache

from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.submodules import Submodule

_CHOICES = (ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.ExceptHandler, ast.While)
_DEEPEST = 4


def always_runs(method: FunctionModel, node: ast.AST) -> bool:
    """Whether a method gets to an expression whenever it is called: no condition and no early end before it."""
    for outer in method.file.index.ancestors(node):
        if outer is method.node:
            break
        if isinstance(outer, _CHOICES):
            return False
        if isinstance(outer, (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)):
            if any(part.ifs for part in outer.generators):
                return False
    line = getattr(node, "lineno", 0)
    return all(item.lineno > line for item in method.returns)


def always_built(cls: ClassModel, built: Submodule) -> bool:
    """Whether every object of a class has a part as it is built there.

    A part of which there are several assignments may be any of them.
    """
    if len(cls.instance_attributes(built.name)) != 1 or built.name in _changed(cls):
        return False
    method = built.file.function_around(built.node)
    return method is not None and always_runs(method, built.call) and _starts(cls, method, 0)


def _starts(cls: ClassModel, method: FunctionModel, depth: int) -> bool:
    """Whether building an object of a class runs a method."""
    if method.name == "__init__" or depth > _DEEPEST:
        return method.name == "__init__"
    for other in (other for owner in cls.mro for other in owner.methods.values() if other.name != method.name):
        for call in other.calls:
            target = call.func
            if not isinstance(target, ast.Attribute) or target.attr != method.name:
                continue
            own = isinstance(target.value, ast.Name) and target.value.id == other.bound
            if own and always_runs(other, call) and _starts(cls, other, depth + 1):
                return True
    return False


@lru_cache(maxsize=64)
def _changed(cls: ClassModel) -> frozenset[str]:
    """Return the parts that a method stores something in, ``self.head.weight = …``, or deletes."""
    found = set()
    for method in (method for owner in cls.mro for method in owner.methods.values()):
        for node in method.file.index.nodes(ast.Attribute, method.node):
            part = node.value if isinstance(node.ctx, ast.Store) else node
            if not isinstance(node.ctx, ast.Load) and isinstance(part, ast.Attribute):
                if isinstance(part.value, ast.Name) and part.value.id == method.bound:
                    found.add(part.attr)
    return frozenset(found)
