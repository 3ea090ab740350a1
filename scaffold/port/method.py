"""A method of an upstream pipeline, taken over with some of its statements replaced."""

from __future__ import annotations

import ast
import builtins
import symtable
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from scaffold.errors import ScaffoldError
from scaffold.source.syntax import walk_tree


@dataclass(frozen=True)
class PortedMethod:
    """The method as source text.

    Attributes:
        text: the method without indentation, with its decorators and comments.
        names: names of its module that it uses, sorted; whoever holds the text has to import them.
    """

    text: str
    names: tuple[str, ...]


def port_method(source: str, owner: str, replace: Mapping[str, str]) -> PortedMethod:
    """Take a method over.

    Args:
        source: text of the method, indented or not.
        owner: class that it is a method of. A bare ``super()`` becomes ``super(owner, self)``: the text will stand in a
            class below it.
        replace: statement to replace, in any formatting, to the statement that takes its place.

    Raises:
        ScaffoldError: the text is not a method, a statement does not stand in it exactly once, or it uses a name that
            only means something inside its class.
    """
    text = textwrap.dedent(source).strip("\n") + "\n"
    try:
        module = cst.parse_module(text)
        tree = ast.parse(text)
    except (cst.ParserSyntaxError, SyntaxError) as error:
        raise ScaffoldError(f"the method of {owner} cannot be parsed: {error}") from None
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise ScaffoldError(f"the text taken from {owner} is not one method")
    name = tree.body[0].name
    for node in walk_tree(tree):
        private = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if private == "__class__" or (private.startswith("__") and not private.endswith("__")):
            raise ScaffoldError(f"{owner}.{name} uses {private}, which means something else outside of {owner}")
    wanted = {_plain(before): after for before, after in replace.items()}
    edit = _Replacer(owner, wanted)
    changed = module.visit(edit).code
    for before, after in replace.items():
        count = edit.counts[_plain(before)]
        if count != 1:
            raise ScaffoldError(
                f"{owner}.{name} holds {before!r} {count} times, to be replaced by {after!r}",
                hint="the method is not what it was when this was written; port the update by hand",
            )
    changed = _without_dead_stores(changed, {n for before in replace for n in _loaded(ast.parse(before.strip()))})
    return PortedMethod(changed, free_names(changed))


def free_names(text: str) -> tuple[str, ...]:
    """Return the names that a function takes from its module: those it neither binds nor finds among the builtins."""
    found: set[str] = set()

    def visit(table: symtable.SymbolTable) -> None:
        for symbol in table.get_symbols():
            if symbol.is_global() and symbol.is_referenced() and not hasattr(builtins, symbol.get_name()):
                found.add(symbol.get_name())
        for child in table.get_children():
            visit(child)

    top = symtable.symtable(text, "<method>", "exec")
    for child in top.get_children():
        visit(child)
    tree = ast.parse(text).body[0]
    outside = [*getattr(tree, "decorator_list", [])]
    arguments = getattr(tree, "args", None)
    if arguments is not None:
        outside += [d for d in (*arguments.defaults, *arguments.kw_defaults) if d is not None]
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        outside += [a.annotation for a in every if a is not None and a.annotation is not None]
    if getattr(tree, "returns", None) is not None:
        outside.append(tree.returns)  # type: ignore[attr-defined]
    for part in outside:
        found |= {n.id for n in walk_tree(part) if isinstance(n, ast.Name) and not hasattr(builtins, n.id)}
    return tuple(sorted(found))


def _loaded(tree: ast.AST) -> set[str]:
    return {n.id for n in walk_tree(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _without_dead_stores(text: str, candidates: set[str]) -> str:
    """Take out assignments to names that only a replaced statement read; a call among their values keeps them."""
    tree = ast.parse(text)
    unread = candidates - _loaded(tree)
    dead = {
        ast.unparse(node)
        for node in walk_tree(tree)
        if isinstance(node, ast.Assign)
        and all(isinstance(target, ast.Name) and target.id in unread for target in node.targets)
        and not any(isinstance(part, (ast.Call, ast.Await, ast.NamedExpr)) for part in walk_tree(node.value))
    }
    return cst.parse_module(text).visit(_Remover(dead)).code


class _Remover(cst.CSTTransformer):
    """Removes statements."""

    def __init__(self, dead: set[str]) -> None:
        super().__init__()
        self.dead = dead

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        code = _plain(cst.Module([original_node.with_changes(leading_lines=())]).code)
        return cst.RemoveFromParent() if code in self.dead else updated_node


def _plain(statement: str) -> str:
    return ast.unparse(ast.parse(statement.strip()))


class _Replacer(cst.CSTTransformer):
    """Replaces statements and names the class of a bare ``super()``; ``counts`` tells how often each was found."""

    def __init__(self, owner: str, wanted: Mapping[str, str]) -> None:
        super().__init__()
        self.owner, self.wanted = owner, wanted
        self.counts = dict.fromkeys(wanted, 0)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement:
        code = _plain(cst.Module([original_node.with_changes(leading_lines=())]).code)
        if code not in self.wanted:
            return updated_node
        self.counts[code] += 1
        new = cst.parse_statement(self.wanted[code])
        return new.with_changes(leading_lines=updated_node.leading_lines)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        func = updated_node.func
        if isinstance(func, cst.Name) and func.value == "super" and not updated_node.args:
            return cst.parse_expression(f"super({self.owner}, self)")
        return updated_node
