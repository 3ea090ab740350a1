"""Headers of functions: decorators, parameters, annotations."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

import libcst as cst

from scaffold.port.expressions import Expressions
from scaffold.port.layers import ENGINES
from scaffold.port.names import Defined, External, Scope
from scaffold.port.one_device import names
from scaffold.port.reading import reads_groups_only, returned_names
from scaffold.source.syntax import walk_tree

if TYPE_CHECKING:
    from scaffold.port.classes import ClassEntry
    from scaffold.port.engine import Engine


# Where code of upstream's has no counterpart: the statement that raises in its place, and the note of it.


class Raising:
    """What all that rewrites a function knows: its scope, its class, the values that are known inside."""

    def __init__(self, engine: Engine, scope: Scope, owner: ClassEntry | None, node: ast.AST) -> None:
        self.engine, self.scope, self.owner = engine, scope, owner
        self.known: dict[str, object] = dict(owner.known) if owner is not None else {}
        self.expressions = Expressions(engine, scope, owner, self.known)
        self._neutral = reads_groups_only(node)
        self._returned = returned_names(node)
        self._stores = Counter(
            found.id for found in walk_tree(node) if isinstance(found, ast.Name) and not isinstance(found.ctx, ast.Load)
        )

    def assume(self, name: str, twin: ast.stmt) -> None:
        """Note an answer that was taken as given, unless it only decides about groups of devices."""
        if not self._neutral:
            self.engine.assume(name, self.scope.info.file, twin.lineno)

    def problem(self, twin: ast.stmt) -> cst.SimpleStatementLine:
        """Return the statement in place of one whose expressions have no counterpart."""
        what = self.expressions.problems[0]
        return self.raising(_named(what) if what.partition(".")[0] in ENGINES else what, twin.lineno)

    def raising(self, what: str, line: int) -> cst.SimpleStatementLine:
        """Return the statement that raises in place of what stands in a line of the file."""
        gap = self.engine.gap(what, self.scope.info.file, line)
        return cst.ensure_type(
            cst.parse_statement(f"raise NotImplementedError({gap.message!r})"), cst.SimpleStatementLine
        )


def _named(path: str) -> str:
    """Return the last name of a dotted path, with its class where it is an attribute of one."""
    *_, owner, last = ["", *path.split(".")]
    return f"{owner}.{last}" if owner[:1].isupper() else last


# What turns gradients off, hands the function to a compiler, or tells the engine's kernels of it: training wants none.
WITHOUT = ("no_grad", "inference_mode", "support_torch_compile", "compile", "set_grad_enabled", "set_forward_context")


class Headers(Raising):
    """Rewrites what stands in front of a function's body."""

    def decorators(self, node: cst.FunctionDef) -> tuple[list[cst.Decorator], str | None]:
        """Return the decorators that stay, and what one of them asks for that has no counterpart."""
        kept = []
        for decorator in node.decorators:
            if self.does_without(decorator.decorator):
                continue
            self.expressions.clear()
            kept.append(
                decorator.with_changes(decorator=self.expressions.rewrite(decorator.decorator), leading_lines=[])
            )
            if self.expressions.problems:
                return [], self.expressions.problems[0]
        return kept, None

    def does_without(self, node: cst.BaseExpression) -> bool:
        """Tell whether a decorator or a context is one that training does without."""
        origin, _ = self.scope.path(node.func if isinstance(node, cst.Call) else node)
        return isinstance(origin, External) and origin.path.rpartition(".")[2] in WITHOUT

    def parameters(self, node: cst.Parameters) -> cst.Parameters:
        """Return the parameters, their defaults rewritten."""

        def changed(parameter: cst.Param) -> cst.Param:
            self.expressions.clear()
            default = self.expressions.rewrite(parameter.default) if parameter.default is not None else None
            if self.expressions.problems:
                default = cst.Name("None")
            return parameter.with_changes(annotation=self.annotation(parameter.annotation), default=default)

        star = node.star_arg
        return node.with_changes(
            params=[changed(p) for p in node.params],
            kwonly_params=[changed(p) for p in node.kwonly_params],
            posonly_params=[changed(p) for p in node.posonly_params],
            star_arg=changed(star) if isinstance(star, cst.Param) else star,
            star_kwarg=changed(node.star_kwarg) if node.star_kwarg is not None else None,
        )

    def annotation(self, node: cst.Annotation | None) -> cst.Annotation | None:
        """Return an annotation that names nothing of the engine's; None for any other."""
        if node is None:
            return None
        names_in = _Names()
        node.annotation.visit(names_in)
        for name in names_in.found:
            origin = self.scope.origin(name)
            if isinstance(origin, Defined) or (isinstance(origin, External) and _foreign(origin.path)):
                return None
        before = list(self.expressions.problems)
        found = node.with_changes(annotation=self.expressions.rewrite(node.annotation))
        self.expressions.problems = before
        return found


class _Names(cst.CSTVisitor):
    """The names in an annotation, also in one that is text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def visit_Name(self, node: cst.Name) -> None:
        self.found.append(node.value)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        node.value.visit(self)
        return False

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        try:
            tree = ast.parse(str(node.evaluated_value), mode="eval")
        except SyntaxError:
            return
        self.found += [found.id for found in walk_tree(tree) if isinstance(found, ast.Name)]


def _foreign(path: str) -> bool:
    return path.partition(".")[0] in (*ENGINES, *names("ABSENT"))
