"""Headers of functions: decorators, parameters, annotations."""

from __future__ import annotations

import ast

import libcst as cst

from scaffold.port.layers import ENGINES
from scaffold.port.names import Defined, External
from scaffold.port.one_device import names
from scaffold.port.raising import Raising
from scaffold.source.syntax import walk_tree

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
