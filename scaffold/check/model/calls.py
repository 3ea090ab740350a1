"""Calls: what they call, and which argument binds to which parameter; what local names and results stand for."""

from __future__ import annotations

import ast

from scaffold.check.model.python import ClassModel, FunctionModel, PythonFile
from scaffold.source.syntax import keyword_of


def dotted(node: ast.AST) -> str | None:
    """Return ``a.b.c`` as it is written, None for anything but names and attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def attribute_name(call: ast.Call) -> str | None:
    """Return ``m`` of ``anything.m(…)`` or of ``m(…)``."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else None


def ending(node: ast.expr) -> str:
    """Return the last name of an expression as it is written: ``c`` of ``a.b.c``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ast.unparse(node).rpartition(".")[2]


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """Return an argument by keyword, else by position (from 0, of the call); None where it is not certain."""
    found = keyword_of(call, name)
    if found is None and position is not None and position < len(call.args):
        if not any(isinstance(item, ast.Starred) for item in call.args[: position + 1]):
            found = call.args[position]
    return found


def has_unpacking(call: ast.Call) -> bool:
    """Whether ``*args`` or ``**kwargs`` bring arguments that cannot be seen."""
    return any(isinstance(item, ast.Starred) for item in call.args) or any(item.arg is None for item in call.keywords)


def bind(call: ast.Call, function: FunctionModel) -> dict[str, ast.expr]:
    """Return parameter -> argument of a call of a function; unpacked arguments are left out."""
    bound = {item.arg: item.value for item in call.keywords if item.arg is not None}
    for name, value in zip(function.positional, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        bound.setdefault(name, value)
    return bound


def resolve(file: PythonFile, call: ast.Call, receiver: ClassModel | None = None) -> FunctionModel | ClassModel | None:
    """Return the function, method or class of the tree that is called.

    Args:
        file: where the call stands.
        call: the call.
        receiver: class that ``self`` and ``cls`` are known to be, where it is not the class of the method around.
    """
    known = file.project.resolved
    if (call, receiver) not in known:
        known[call, receiver] = _resolve(file, call, receiver)
    return known[call, receiver]


def _resolve(file: PythonFile, call: ast.Call, receiver: ClassModel | None) -> FunctionModel | ClassModel | None:
    function = call.func
    around = file.function_around(call)
    owner = around.cls if around is not None else None
    if isinstance(function, ast.Attribute) and owner is not None and around is not None:
        value = function.value
        if isinstance(value, ast.Name) and value.id == around.bound:
            cls = receiver if receiver is not None and owner in receiver.mro else owner
            found = cls.method(function.attr)
            return found or _built(cls, function.attr)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "super":
            cls = receiver if receiver is not None and owner in receiver.mro else owner
            return cls.super_method(function.attr, owner)
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == around.bound:
            built = _built(receiver if receiver is not None and owner in receiver.mro else owner, value.attr)
            return built.method(function.attr) if built is not None else None
    name = file.qualified(function)
    if name is None:
        return None
    return file.project.class_named(name) or file.project.function_named(name)


def _built(cls: ClassModel, attribute: str) -> ClassModel | None:
    """Return the class whose instance ``self.attribute`` is, where every assignment says so."""
    found: set[ClassModel] = set()
    for assignment in cls.instance_attributes(attribute):
        value = assignment.value
        if not isinstance(value, ast.Call):
            return None
        built = assignment.file.project.class_of(assignment.file, value.func)
        if built is None:
            return None
        found.add(built)
    return found.pop() if len(found) == 1 else None


def returned(function: FunctionModel) -> list[ast.expr]:
    """Return the expressions that a function returns; a name that is assigned once is replaced by its value."""
    found = []
    for statement in function.returns:
        value = statement.value if statement.value is not None else ast.Constant(value=None)
        found.append(follow(function.file, value))
    return found


def follow(file: PythonFile, value: ast.expr, hops: int = 5) -> ast.expr:
    """Return the value of a local name that is assigned exactly once; any other expression as it is."""
    while isinstance(value, ast.Name) and hops:
        bindings = file.scopes.lookup(value.id, value)
        if len(bindings) != 1 or bindings[0].kind != "variable" or bindings[0].value is None:
            break
        value, hops = bindings[0].value, hops - 1
    return value


def instance_class(function: FunctionModel, value: ast.expr) -> ClassModel | None:
    """Return the class of the tree that ``value`` is an instance of: ``C(…)``, ``C.from_…(…)``, ``x.to(…)`` of one."""
    file = function.file
    for _ in range(5):
        value = follow(file, value)
        if not isinstance(value, ast.Call):
            return None
        cls = file.project.class_of(file, value.func)
        if cls is not None:
            return cls
        if not isinstance(value.func, ast.Attribute):
            return None
        if value.func.attr.startswith("from_"):
            return file.project.class_of(file, value.func.value)
        if value.func.attr not in ("to", "eval", "train", "cuda", "cpu", "float", "bfloat16", "requires_grad_"):
            return None
        value = value.func.value
    return None
