"""Gradient checkpointing: calls of layers in loops go through ``_checkpointed_call``."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import UnionType

import libcst as cst

from scaffold.port.layer_functions import GROWS, LayerFunction, layer_functions
from scaffold.port.layer_lists import layer_lists, outermost
from scaffold.port.never_given import never_given
from scaffold.port.supports import support_text
from scaffold.source.syntax import walk_tree

CALL = "_checkpointed_call"
BASE = "CheckpointedLayers"
CALLED, CALL_AS_MODULES = "CalledLayer", "call_as_modules"
_NUMBER = "#"  # what a loop's variable is bound to that counts


@dataclass(frozen=True)
class Checkpointed:
    """A module's text with its layers' calls sent through ``_checkpointed_call``.

    Attributes:
        text: the module.
        layers: classes whose calls are, in the order found, and functions that compute one layer; none where no loop
            calls layers.
        owners: classes that hold such a loop.
        called: whether layers that functions compute are called as modules, of the class ``CalledLayer``.
    """

    text: str
    layers: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    called: bool = False


@dataclass
class _Found:
    layers: dict[str, None] = field(default_factory=dict)
    owners: dict[str, None] = field(default_factory=dict)
    partial: bool = False
    called: dict[tuple[str, str], None] = field(default_factory=dict)  # class, and its list of such layers


def checkpoint_layers(text: str) -> Checkpointed:
    """Return a port's text, its loops over layers rewritten.

    A loop counts where it runs over a list of modules that hold a class of the same text, and calls its variable; or
    where it runs over numbers, and calls a function of the text that computes the layer of that number. A call that is
    handed a cache which the layer adds to stays as it is, unless there never is one.
    """
    tree = ast.parse(text)
    lists, functions = layer_lists(tree), layer_functions(tree)
    if not lists and not functions:
        return Checkpointed(text)
    found = _Found()
    rewriter = _Rewriter(
        lists, functions, _constructed(tree), found, _holding(tree, ast.For | ast.AsyncFor), never_given(tree)
    )
    parts = _Parts(text, tree)
    parts.change(rewriter, [node for node in tree.body if _has(node, ast.For | ast.AsyncFor)])
    if not found.layers:
        return Checkpointed(text)
    bases = outermost(tree, set(found.owners))
    changer = _Bases(bases, found.called, _holding(tree, ast.ClassDef))
    owners = bases | {owner for owner, _ in found.called}
    parts.change(changer, [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in owners])
    parts.add_behind_imports(_support(found.partial, bool(found.called)))
    return Checkpointed(parts.text(), tuple(found.layers), tuple(found.owners), bool(found.called))


class _Parts:
    """The text of a module by its statements: libcst parses those that change and no others, for it takes its time."""

    def __init__(self, text: str, tree: ast.Module) -> None:
        lines = text.splitlines(keepends=True)
        self._tree = tree
        self._texts: list[str] = []
        self._place: dict[ast.stmt, int] = {}
        end = 0
        for node in tree.body:
            first = min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", ()))]) - 1
            if first < end:  # beside another statement on its line
                self._place[node] = len(self._texts) - 1
                continue
            self._texts += ["".join(lines[end:first]), "".join(lines[first : node.end_lineno])]
            self._place[node] = len(self._texts) - 1
            end = node.end_lineno or first + 1
        self._texts.append("".join(lines[end:]))

    def change(self, transformer: cst.CSTTransformer, nodes: Iterable[ast.stmt]) -> None:
        """Have statements rewritten."""
        for place in {self._place[node]: None for node in nodes}:
            self._texts[place] = cst.parse_module(self._texts[place]).visit(transformer).code

    def add_behind_imports(self, text: str) -> None:
        """Put a text behind the last import."""
        last = max(self._place[node] for node in self._tree.body if isinstance(node, (ast.Import, ast.ImportFrom)))
        self._texts[last] += text

    def text(self) -> str:
        """Return the whole."""
        return "".join(self._texts)


def _has(node: ast.AST, kind: type[ast.AST] | UnionType) -> bool:
    return any(isinstance(inner, kind) for inner in walk_tree(node))


def _holding(tree: ast.Module, kind: type[ast.AST] | UnionType) -> frozenset[str]:
    """Return the names of the functions that have something of a kind in them; no others need be looked into."""
    functions = [node for node in walk_tree(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return frozenset(node.name for node in functions if _has(node, kind))


def _constructed(tree: ast.Module) -> dict[str, frozenset[str]]:
    """Return the attributes that constructors fill at their first level, by class."""
    found = {}
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        made = [inner for inner in node.body if isinstance(inner, ast.FunctionDef) and inner.name == "__init__"]
        statements = made[0].body if made else []
        if not any(isinstance(inner, ast.Return) for statement in statements for inner in walk_tree(statement)):
            targets = [t for line in statements if isinstance(line, ast.Assign) for t in line.targets]
            found[node.name] = frozenset(ast.unparse(t).removeprefix("self.") for t in targets)
    return found


class _Rewriter(cst.CSTTransformer):
    """Rewrites calls of loops' variables."""

    def __init__(
        self,
        lists: dict[str, tuple[str, ...]],
        functions: dict[str, LayerFunction],
        constructed: dict[str, frozenset[str]],
        found: _Found,
        looping: frozenset[str],
        nothing: frozenset[str],
    ) -> None:
        super().__init__()
        self.lists = lists
        self.functions = functions
        self.constructed = constructed
        self.found = found
        self.looping = looping
        self.nothing = nothing
        self.owners: list[str] = []
        self.bound: list[dict[str, str]] = [{}]

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.owners.append(node.name.value)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self.owners.pop()
        return updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        first = node.params.params[:1]
        self.bound.append({"": "self"} if self.owners and first and first[0].name.value == "self" else {})
        return node.name.value in self.looping

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
        if called in self.functions and self._is_numbered(original_node, self.functions[called], known):
            self.found.layers[called] = None
            return self._checkpointed(updated_node, self._called(original_node, self.functions[called]))
        if known.get(called, _NUMBER) == _NUMBER:
            return updated_node
        given = [arg for arg in original_node.args if not (arg.keyword and arg.keyword.value in self.nothing)]
        names = [ast.unparse(ast.parse(cst.Module([]).code_for_node(arg.value))) for arg in given]
        keywords = [arg.keyword.value if arg.keyword else "" for arg in given]
        if any(part in text for text in (*names, *keywords) for part in GROWS):
            return updated_node
        self.found.layers |= dict.fromkeys(self.lists[known[called]])
        return self._checkpointed(updated_node)

    @staticmethod
    def _is_numbered(call: cst.Call, function: LayerFunction, known: dict[str, str]) -> bool:
        """Tell whether a function is told the number of the layer that the loop is at."""
        given = _given(call, function)
        number = given.get(function.number)
        return isinstance(number, cst.Name) and known.get(number.value) == _NUMBER

    def _called(self, call: cst.Call, function: LayerFunction) -> str:
        """Return the layer that a function is to compute, where its list is an attribute that the class makes."""
        given = _given(call, function)
        holder = given.get(function.holder)
        if holder is None:
            return ""
        text = cst.Module([]).code_for_node(holder)
        start, _, rest = text.partition(".")
        if start != "self" or not all(part.isidentifier() for part in rest.split(".")):
            return ""
        if rest.partition(".")[0] not in self.constructed.get(self.owners[-1], ()):
            return ""
        layers = f"{text}.{function.path}"
        self.found.called[self.owners[-1], layers] = None
        return f"{layers}[{cst.Module([]).code_for_node(given[function.number])}]"

    def _checkpointed(self, updated_node: cst.Call, called: str = "") -> cst.BaseExpression:
        """Return the call through ``_checkpointed_call``; arguments by name go into a ``partial``.

        With ``called``, the layer that is called as a module with the function that computes it.
        """
        self.found.owners[self.owners[-1]] = None
        plain = [arg for arg in updated_node.args if arg.keyword is None and arg.star != "**"]
        named = [arg for arg in updated_node.args if arg.keyword is not None or arg.star == "**"]
        layer: cst.BaseExpression = updated_node.func
        if named:
            self.found.partial = True
            layer = cst.Call(cst.Name("partial"), [cst.Arg(layer), *(_bare(arg) for arg in named)])
        if called:
            self.found.partial = True
            layer = cst.Call(cst.Name("partial"), [cst.Arg(cst.parse_expression(called)), cst.Arg(layer)])
        return updated_node.with_changes(
            func=cst.Attribute(cst.Name("self"), cst.Name(CALL)), args=[cst.Arg(layer), *(_bare(arg) for arg in plain)]
        )


def _given(call: cst.Call, function: LayerFunction) -> dict[str, cst.BaseExpression]:
    """Return the arguments of a call by the names of the parameters; none where some are unpacked."""
    if any(argument.star for argument in call.args):
        return {}
    return {
        argument.keyword.value if argument.keyword is not None else function.parameters[index]: argument.value
        for index, argument in enumerate(call.args)
    }


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
    """Gives classes the base that has ``_checkpointed_call``, and prepares layers that functions compute."""

    def __init__(self, owners: set[str], called: Iterable[tuple[str, str]], deep: frozenset[str]) -> None:
        super().__init__()
        self.owners, self.called, self.deep = owners, list(called), deep
        self._inside: list[str] = []

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._inside.append(node.name.value)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return node.name.value in self.deep

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        if original_node.name.value != "__init__" or not self._inside:
            return updated_node
        layers = [layers for owner, layers in self.called if owner == self._inside[-1]]
        lines = [cst.parse_statement(f"{CALL_AS_MODULES}({text})") for text in layers]
        body = cst.ensure_type(updated_node.body, cst.IndentedBlock)
        return updated_node.with_changes(body=body.with_changes(body=[*body.body, *lines]))

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self._inside.pop()
        if original_node.name.value not in self.owners:
            return updated_node
        bases = [cst.Arg(cst.Name(BASE)), *(_bare(base) for base in updated_node.bases)]
        return updated_node.with_changes(bases=bases, lpar=cst.MaybeSentinel.DEFAULT, rpar=cst.MaybeSentinel.DEFAULT)


def _support(partial: bool, called: bool) -> str:
    """Return the base class and what it imports."""
    lines = ["from collections.abc import Callable, Iterable", "from typing import Any", "import torch"]
    lines += ["from torch.utils.checkpoint import checkpoint"] + (["from functools import partial"] if partial else [])
    supports = [support_text("checkpointed", {BASE})]
    if called:
        lines.append("from torch import nn")
        supports.append(support_text("called_layer", {CALLED, CALL_AS_MODULES}))
    return "\n\n\n".join(["\n".join(lines), *supports]) + "\n"
