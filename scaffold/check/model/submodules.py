"""What a module builds in its methods: sub-modules, parameters, elements of lists."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.classes import ClassModel
from scaffold.check.model.follow import follow
from scaffold.check.model.pyfile import PythonFile

_COPIES = ("copy.deepcopy", "copy.copy")
_LISTS = ("torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ModuleDict")


class Submodule:
    """A module that a class builds in one of its methods.

    Attributes:
        owner: the class that builds it.
        name: the attribute it is kept under.
        cls: its class, where that is of the tree.
        qualified: dotted name of its class, where that resolves (``torch.nn.Linear``).
        node: the attribute's target in ``self.name = …``.
        call: the call that builds it.
        repeated: it is an element of a list, ``ModuleList`` or ``Sequential``, perhaps one of many.
        key: its name in a ``ModuleDict`` that is written out.
    """

    def __init__(
        self, owner: ClassModel, name: str, file: PythonFile, node: ast.AST, call: ast.Call, repeated: bool
    ) -> None:
        self.owner, self.name, self.file, self.node, self.call, self.repeated = owner, name, file, node, call, repeated
        around = file.index.parent(call)
        named = isinstance(around, ast.Dict) and call in around.values
        key = around.keys[around.values.index(call)] if named and isinstance(around, ast.Dict) else None
        self.key = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
        self.cls = file.project.class_of(file, call.func)
        self.qualified = self.cls.qualname if self.cls is not None else file.qualified(call.func)


def submodules(cls: ClassModel) -> list[Submodule]:
    """Return what a class assigns to ``self.name`` by calls, elements of lists each for themselves.

    Anything that is built counts, parameters and plain objects too; the caller looks at ``qualified``.
    """
    found = []
    for owner in cls.mro:
        for name, assignments in owner.own_instance_attributes.items():
            for assignment in assignments:
                if assignment.value is None:
                    continue
                for call, repeated in _constructions(owner.file, assignment.value):
                    found.append(Submodule(owner, name, owner.file, assignment.node, call, repeated))
    return found


def _constructions(file: PythonFile, value: ast.expr) -> Iterator[tuple[ast.Call, bool]]:
    if isinstance(value, ast.IfExp):
        for arm in (value.body, value.orelse):
            yield from _constructions(file, arm)
        return
    value = _original(file, value)
    if isinstance(value, ast.Call) and file.qualified(value.func) not in _LISTS:
        yield value, False
        return
    inner = list(value.args) if isinstance(value, ast.Call) else [value]
    while inner:
        node = _original(file, inner.pop(0))
        if isinstance(node, ast.Starred):
            inner.append(node.value)
        elif isinstance(node, (ast.List, ast.Tuple)):
            inner += node.elts
        elif isinstance(node, ast.Dict):
            inner += node.values
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            inner.append(node.elt)
        elif isinstance(node, ast.DictComp):
            inner.append(node.value)
        elif isinstance(node, ast.IfExp):
            inner += [node.body, node.orelse]
        elif isinstance(node, ast.BinOp):
            inner += [node.left, node.right]
        elif isinstance(node, ast.Call):
            yield node, True


def _original(file: PythonFile, value: ast.expr) -> ast.expr:
    """Return what builds a module that stands under a local name, or is copied."""
    found = follow(file, value)
    while isinstance(found, ast.Call) and file.qualified(found.func) in _COPIES and len(found.args) == 1:
        found = follow(file, found.args[0])
    return found if isinstance(found, ast.Call) else value


def module_tree(cls: ClassModel) -> list[Submodule]:
    """Return what a module builds and what that builds in turn, each class of the tree once."""
    found: list[Submodule] = []
    seen = {cls}
    pending = [cls]
    while pending:
        for built in submodules(pending.pop(0)):
            found.append(built)
            if built.cls is not None and built.cls not in seen:
                seen.add(built.cls)
                pending.append(built.cls)
    return found
