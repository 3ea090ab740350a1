"""Classes of the source as the port needs them: order of inheritance, methods, and the layers that they hold."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from scaffold.port.files import Definition, block, pairs
from scaffold.port.layer import Arguments, Built, Site, UnsupportedError
from scaffold.port.layer_dicts import calls_in
from scaffold.port.layers import bases as base_classes
from scaffold.port.layers import kind_of
from scaffold.port.names import Defined, External, Scope
from scaffold.source.syntax import is_own, walk_tree


@dataclass
class HeldLayer:
    """A layer of the engine's that a class assigns to an attribute."""

    attribute: str
    built: Built


@dataclass
class ClassEntry:
    """One class: both trees of its methods, its bases, its layers by attribute."""

    key: Defined
    definition: Definition
    bases: list[Defined | str] = field(default_factory=list)
    methods: dict[str, tuple[cst.FunctionDef, ast.FunctionDef]] = field(default_factory=dict)
    statements: list[tuple[cst.CSTNode, ast.stmt]] = field(default_factory=list)
    layers: dict[str, HeldLayer] = field(default_factory=dict)
    known: dict[str, object] = field(default_factory=dict)
    custom_op: bool = False
    stores: Counter[str] = field(default_factory=Counter)

    @property
    def twin(self) -> ast.ClassDef:
        """The class in ``ast``."""
        assert isinstance(self.definition.twin, ast.ClassDef)
        return self.definition.twin


def read_class(key: Defined, definition: Definition, scope: Scope, followed: Callable[[Defined], bool]) -> ClassEntry:
    """Return the class with its methods, not yet with its layers."""
    entry = ClassEntry(key, definition)
    node, twin = definition.node, definition.twin
    assert isinstance(node, cst.ClassDef)
    assert isinstance(twin, ast.ClassDef)
    for child, other in pairs(block(node.body), twin.body):
        entry.statements.append((child, other))
        if isinstance(child, cst.FunctionDef) and isinstance(other, ast.FunctionDef):
            entry.methods[child.name.value] = (child, other)
            entry.stores.update(
                found.attr
                for found in walk_tree(other)
                if isinstance(found, ast.Attribute) and isinstance(found.ctx, ast.Store)
            )
    for base in node.bases:
        value = base.value.value if isinstance(base.value, cst.Subscript) else base.value
        origin, rest = scope.path(value)
        if isinstance(origin, Defined) and not followed(origin):
            origin = External(f"{origin.module}.{origin.name}")
        if isinstance(origin, Defined) and not rest:
            entry.bases.append(origin)
        elif isinstance(origin, External):
            last = origin.path.rpartition(".")[2]
            entry.custom_op = entry.custom_op or last == "CustomOp"
            entry.bases.append(base_classes().get(last, origin.path) if _replaced(origin.path) else origin.path)
        else:
            entry.bases.append(cst.Module([]).code_for_node(value))
    return entry


def _replaced(path: str) -> bool:
    return path.partition(".")[0] in ("vllm", "vllm_omni", "diffusers")


def layer_calls(entry: ClassEntry) -> Iterator[tuple[str, ast.Call]]:
    """Yield attribute and call of each ``self.attribute = Layer(…)``, also in the branches of a condition.

    One in a ``ModuleDict`` goes by the names of both, ``proj.qkv``.
    """
    for _, method in entry.methods.values():
        for node in walk_tree(method):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, value = node.targets[0], node.value
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                target, value = node.target, node.value
            else:
                continue
            if is_own(target):
                for call in _calls(value):
                    yield target.attr, call
                for key, call in calls_in(value):
                    yield f"{target.attr}.{key}", call


def _calls(value: ast.expr) -> Iterator[ast.Call]:
    if isinstance(value, ast.Call):
        yield value
    elif isinstance(value, ast.IfExp):
        yield from _calls(value.body)
        yield from _calls(value.orelse)


def built_from(call: ast.Call, path: str, parts: tuple[str, ...] | None) -> Built | None:
    """Return what stands for a layer as far as a scan tells; None where it has no counterpart."""
    kind = kind_of(path)
    if kind is None or any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    arguments = Arguments(
        tuple(ast.unparse(a) for a in call.args),
        {str(k.arg): ast.unparse(k.value) for k in call.keywords},
        path.rpartition(".")[2],
    )
    try:
        return kind.build(arguments, Site(parts))
    except UnsupportedError:
        return None
