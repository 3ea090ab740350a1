"""What a denoiser reads from the engine's context of a forward pass, as arguments of its own."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from scaffold.port.names import Defined, Scope
from scaffold.port.one_device.context import ASKED, CONTEXT
from scaffold.port.reading import OF_GROUPS
from scaffold.source.syntax import walk_tree


@dataclass(frozen=True)
class ContextArguments:
    """A method that is given what it read.

    Attributes:
        node, twin: the method in both trees.
        fields: attributes of the context, each with the argument that stands for it.
        module: dotted name of the module that has the context.
    """

    node: cst.FunctionDef
    twin: ast.FunctionDef
    fields: dict[str, str]
    module: str


def with_context_arguments(node: cst.FunctionDef, twin: ast.FunctionDef, scope: Scope) -> ContextArguments | None:
    """Return the method with an argument for each attribute of the context that it reads.

    None where it reads none, or does anything else with the context: what the engine says about groups of devices has
    its answers already, and what is handed on is read elsewhere.
    """
    calls = [n for n in walk_tree(twin) if _is_call(n, CONTEXT, scope)]
    if not calls:
        return None
    bound = [n for n in walk_tree(twin) if isinstance(n, ast.Assign) and _is_call(n.value, CONTEXT, scope)]
    held = {n.targets[0].id for n in bound if len(n.targets) == 1 and isinstance(n.targets[0], ast.Name)}
    bindings = [n for n in bound if isinstance(n.targets[0], ast.Name) and n.targets[0].id in held]
    read = list(_reads(twin, held, scope))
    uses = [n for n in walk_tree(twin) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in held]
    if not read or len(read) != len(uses) + len(calls) - len(bindings):
        return None
    names = sorted({found.attr for found in read})
    if any(name.startswith(OF_GROUPS) for name in names):
        return None
    taken = {found.id for found in walk_tree(twin) if isinstance(found, ast.Name)} - held
    taken |= {found.arg for found in walk_tree(twin.args) if isinstance(found, ast.arg)}
    fields = {name: f"context_{name}" if name in taken else name for name in names}
    changed = node.visit(_Nodes(held, scope, fields))
    assert isinstance(changed, cst.FunctionDef)
    twins = _Twins(held, scope, fields).given(copy.deepcopy(twin))
    return ContextArguments(_given(changed, fields), twins, fields, _module(calls, scope))


def _module(calls: list[ast.AST], scope: Scope) -> str:
    """The module that has the context."""
    names = [c.func.id for c in calls if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)]
    origin = scope.origin(names[0])
    if isinstance(origin, Defined):
        return origin.module
    return origin.path.rpartition(".")[0] if origin is not None else ""


def _is_call(node: object, name: str, scope: Scope) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _is_of_context(node.func.id, name, scope)


def _is_of_context(used: str, name: str, scope: Scope) -> bool:
    origin = scope.origin(used)
    if isinstance(origin, Defined):
        return origin.name == name
    return origin is not None and origin.path.rpartition(".")[2] == name


def _reads(twin: ast.FunctionDef, held: set[str], scope: Scope) -> Iterator[ast.Attribute]:
    for found in walk_tree(twin):
        if isinstance(found, ast.Attribute) and isinstance(found.ctx, ast.Load):
            base = found.value
            if _is_call(base, CONTEXT, scope) or (isinstance(base, ast.Name) and base.id in held):
                yield found


class _Nodes(cst.CSTTransformer):
    def __init__(self, held: set[str], scope: Scope, fields: dict[str, str]) -> None:
        super().__init__()
        self.held, self.scope, self.fields = held, scope, fields

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        base = original_node.value
        if (isinstance(base, cst.Name) and base.value in self.held) or self._is_call(base, CONTEXT):
            return cst.Name(self.fields[original_node.attr.value])
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        return cst.Name("True") if self._is_call(original_node, ASKED) else updated_node

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.BaseSmallStatement:
        return cst.Pass() if self._is_call(original_node.value, CONTEXT) else updated_node

    def _is_call(self, node: cst.BaseExpression, name: str) -> bool:
        if not (isinstance(node, cst.Call) and isinstance(node.func, cst.Name)):
            return False
        return _is_of_context(node.func.value, name, self.scope)


class _Twins(ast.NodeTransformer):
    def __init__(self, held: set[str], scope: Scope, fields: dict[str, str]) -> None:
        self.held, self.scope, self.fields = held, scope, fields

    def given(self, twin: ast.FunctionDef) -> ast.FunctionDef:
        """Return the method with its new arguments."""
        twin.body = [self.visit(statement) for statement in twin.body]
        twin.args.kwonlyargs += [ast.arg(name) for name in self.fields.values()]
        twin.args.kw_defaults += [ast.Constant(None) for _ in self.fields]
        return ast.fix_missing_locations(twin)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        base = node.value
        if (isinstance(base, ast.Name) and base.id in self.held) or _is_call(base, CONTEXT, self.scope):
            return ast.copy_location(ast.Name(self.fields[node.attr], ast.Load()), node)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if _is_call(node, ASKED, self.scope):
            return ast.copy_location(ast.Constant(True), node)
        self.generic_visit(node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        if _is_call(node.value, CONTEXT, self.scope):
            return ast.copy_location(ast.Pass(), node)
        self.generic_visit(node)
        return node


def _given(node: cst.FunctionDef, fields: dict[str, str]) -> cst.FunctionDef:
    params = node.params
    added = [cst.Param(cst.Name(name), default=cst.Name("None")) for name in fields.values()]
    star = params.star_arg
    if not params.kwonly_params and not isinstance(star, cst.Param):
        star = cst.ParamStar()
    return node.with_changes(params=params.with_changes(star_arg=star, kwonly_params=[*params.kwonly_params, *added]))
