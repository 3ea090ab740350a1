"""Gradient checkpointing: calls of layers in loops go through ``_checkpointed_call``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from scaffold.port.layer_functions import GROWS, layer_functions
from scaffold.port.supports import support_text

CALL = "_checkpointed_call"
BASE = "CheckpointedLayers"
_NUMBER = "#"  # what a loop's variable is bound to that counts


@dataclass(frozen=True)
class Checkpointed:
    """A module's text with its layers' calls sent through ``_checkpointed_call``.

    Attributes:
        text: the module.
        layers: classes whose calls are, in the order found, and functions that compute one layer; none where no loop
            calls layers.
        owners: classes that hold such a loop.
    """

    text: str
    layers: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


@dataclass
class _Found:
    layers: dict[str, None] = field(default_factory=dict)
    owners: dict[str, None] = field(default_factory=dict)
    partial: bool = False


def checkpoint_layers(text: str) -> Checkpointed:
    """Return a port's text, its loops over layers rewritten.

    A loop counts where it runs over a list of modules that hold a class of the same text, and calls its variable; or
    where it runs over numbers, and calls a function of the text that computes the layer of that number. A call that is
    handed a cache which the layer adds to stays as it is.
    """
    tree = ast.parse(text)
    lists, functions = _lists(tree), layer_functions(tree)
    if not lists and not functions:
        return Checkpointed(text)
    found = _Found()
    changed = cst.parse_module(text).visit(_Rewriter(lists, functions, found))
    if not found.layers:
        return Checkpointed(text)
    changed = changed.visit(_Bases(_outermost(tree, set(found.owners))))
    code = _with_support(changed, found.partial)
    return Checkpointed(code, tuple(found.layers), tuple(found.owners))


def _lists(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """Return the classes of a text that it puts into lists of modules, by the list's attribute."""
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    found: dict[str, dict[str, None]] = {}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for statement in ast.walk(function):
            if not isinstance(statement, ast.Assign) or not _is_module_list(statement.value):
                continue
            assert isinstance(statement.value, ast.Call)
            for target in statement.targets:
                if isinstance(target, ast.Attribute):
                    for name in _elements(function, statement.value.args, own):
                        found.setdefault(target.attr, {})[name] = None
    inside = _inside(tree, own, {name for names in found.values() for name in names})
    outer = {attribute: tuple(name for name in names if name not in inside) for attribute, names in found.items()}
    return {attribute: names for attribute, names in outer.items() if names}


def _inside(tree: ast.Module, own: set[str], layers: set[str]) -> set[str]:
    """Return the classes that layers are made of: those are computed again with the layer around them."""
    makes = {
        node.name: {inner.func.id for inner in ast.walk(node) if isinstance(inner, ast.Call)
                    and isinstance(inner.func, ast.Name) and inner.func.id in own}
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }  # fmt: skip
    found: set[str] = set()
    pending = list(layers)
    while pending:
        for name in makes[pending.pop()] - found:
            found.add(name)
            pending.append(name)
    return found


def _outermost(tree: ast.Module, owners: set[str]) -> set[str]:
    """Return the classes of ``owners`` that inherit from no other of them."""
    bases = {
        node.name: [ast.unparse(base) for base in node.bases] for node in tree.body if isinstance(node, ast.ClassDef)
    }

    def inherits(name: str) -> bool:
        return any(base in owners or inherits(base) for base in bases.get(name, ()))

    return {name for name in owners if not inherits(name)}


def _is_module_list(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "ModuleList"


def _elements(function: ast.FunctionDef, given: list[ast.expr], own: set[str]) -> Iterator[str]:
    """Yield the classes of the text that a list is made of, where it is given as a local name too."""
    for node in given:
        if isinstance(node, ast.Name):
            for inner in ast.walk(function):
                if isinstance(inner, ast.Assign | ast.AugAssign):
                    target = inner.targets[0] if isinstance(inner, ast.Assign) else inner.target
                    yield from _made(inner.value, own) if ast.unparse(target) == node.id else ()
                elif isinstance(inner, ast.Call) and ast.unparse(inner.func) == f"{node.id}.append":
                    yield from _made(inner.args[0], own)
        else:
            yield from _made(node, own)


def _made(node: ast.expr, own: set[str]) -> Iterator[str]:
    """Yield the classes whose instances a list holds; arguments of constructors are not looked into."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in own:
            yield node.func.id
    elif isinstance(node, ast.List | ast.Tuple):
        for element in node.elts:
            yield from _made(element, own)
    elif isinstance(node, ast.ListComp | ast.GeneratorExp):
        yield from _made(node.elt, own)
    elif isinstance(node, ast.IfExp):
        yield from _made(node.body, own)
        yield from _made(node.orelse, own)


class _Rewriter(cst.CSTTransformer):
    """Rewrites calls of loops' variables."""

    def __init__(
        self, lists: dict[str, tuple[str, ...]], functions: dict[str, tuple[tuple[str, ...], str]], found: _Found
    ) -> None:
        super().__init__()
        self.lists = lists
        self.functions = functions
        self.found = found
        self.owners: list[str] = []
        self.bound: list[dict[str, str]] = [{}]

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.owners.append(node.name.value)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self.owners.pop()
        return updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        first = node.params.params[:1]
        self.bound.append({"": "self"} if self.owners and first and first[0].name.value == "self" else {})

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self.bound.pop()
        return updated_node

    def visit_For(self, node: cst.For) -> None:
        known = self.bound[-1]
        pair = _variable(node.target, node.iter)
        if "" in known and pair is not None and pair[1] in self.lists:
            self.bound.append({**known, pair[0]: pair[1]})
        elif "" in known and isinstance(node.target, cst.Name) and _is_range(node.iter):
            self.bound.append({**known, node.target.value: _NUMBER})
        else:
            self.bound.append(known)

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        self.bound.pop()
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        known = self.bound[-1]
        if not isinstance(original_node.func, cst.Name):
            return updated_node
        called = original_node.func.value
        if called in self.functions and self._is_numbered(original_node, *self.functions[called], known):
            self.found.layers[called] = None
            return self._checkpointed(updated_node)
        if known.get(called, _NUMBER) == _NUMBER:
            return updated_node
        names = [ast.unparse(ast.parse(cst.Module([]).code_for_node(arg.value))) for arg in original_node.args]
        keywords = [arg.keyword.value if arg.keyword else "" for arg in original_node.args]
        if any(part in text for text in (*names, *keywords) for part in GROWS):
            return updated_node
        self.found.layers |= dict.fromkeys(self.lists[known[called]])
        return self._checkpointed(updated_node)

    @staticmethod
    def _is_numbered(call: cst.Call, parameters: tuple[str, ...], number: str, known: dict[str, str]) -> bool:
        """Tell whether a function is told the number of the layer that the loop is at."""
        for index, argument in enumerate(call.args):
            if argument.star:
                return False
            name = argument.keyword.value if argument.keyword is not None else parameters[index]
            if name == number:
                return isinstance(argument.value, cst.Name) and known.get(argument.value.value) == _NUMBER
        return False

    def _checkpointed(self, updated_node: cst.Call) -> cst.BaseExpression:
        """Return the call through ``_checkpointed_call``; arguments by name go into a ``partial``."""
        self.found.owners[self.owners[-1]] = None
        plain = [arg for arg in updated_node.args if arg.keyword is None and arg.star != "**"]
        named = [arg for arg in updated_node.args if arg.keyword is not None or arg.star == "**"]
        layer: cst.BaseExpression = updated_node.func
        if named:
            self.found.partial = True
            layer = cst.Call(cst.Name("partial"), [cst.Arg(layer), *(_bare(arg) for arg in named)])
        return updated_node.with_changes(
            func=cst.Attribute(cst.Name("self"), cst.Name(CALL)), args=[cst.Arg(layer), *(_bare(arg) for arg in plain)]
        )


def _is_range(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "range"


def _bare(arg: cst.Arg) -> cst.Arg:
    return arg.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=cst.SimpleWhitespace(""))


def _variable(target: cst.BaseAssignTargetExpression, given: cst.BaseExpression) -> tuple[str, str] | None:
    """Return the variable and the attribute of ``for x in self.xs`` and of ``for i, x in enumerate(self.xs)``."""
    if isinstance(given, cst.Call) and isinstance(given.func, cst.Name) and given.func.value == "enumerate":
        if not isinstance(target, cst.Tuple) or len(target.elements) != 2 or not given.args:
            return None
        inner = target.elements[1].value
        return _variable(inner, given.args[0].value) if isinstance(inner, cst.Name) else None
    if isinstance(given, cst.Subscript):  # a slice of the list
        given = given.value
    if isinstance(target, cst.Name) and isinstance(given, cst.Attribute):
        return target.value, given.attr.value
    return None


class _Bases(cst.CSTTransformer):
    """Gives classes the base that has ``_checkpointed_call``."""

    def __init__(self, owners: set[str]) -> None:
        super().__init__()
        self.owners = owners

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        if original_node.name.value not in self.owners:
            return updated_node
        bases = [cst.Arg(cst.Name(BASE)), *(_bare(base) for base in updated_node.bases)]
        return updated_node.with_changes(bases=bases, lpar=cst.MaybeSentinel.DEFAULT, rpar=cst.MaybeSentinel.DEFAULT)


def _with_support(module: cst.Module, partial: bool) -> str:
    """Return the text with the base class behind its imports."""
    lines = ["from collections.abc import Callable", "from typing import Any", "import torch"]
    lines += ["from torch.utils.checkpoint import checkpoint"] + (["from functools import partial"] if partial else [])
    text = "\n".join(lines) + "\n\n\n" + support_text("checkpointed", {BASE}) + "\n"
    added = cst.parse_module(text).body
    last = max(index for index, node in enumerate(module.body) if _is_import(node))
    return module.with_changes(body=[*module.body[: last + 1], *added, *module.body[last + 1 :]]).code


def _is_import(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[0], cst.Import | cst.ImportFrom)
