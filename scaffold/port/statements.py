"""Statements: branches that one device never takes are left out, what has no counterpart raises at its place."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence

import libcst as cst

from scaffold.port.assigned_layers import AssignedLayers
from scaffold.port.blocks import code, ends, indented
from scaffold.port.constants import Unknown, truth, value
from scaffold.port.files import block, branch, pairs
from scaffold.port.names import Defined, Scope, dotted
from scaffold.port.one_device import names
from scaffold.port.reading import bound_names, changed_tensor, changes_in_place
from scaffold.source.syntax import walk_tree


class Statements(AssignedLayers):
    """Rewrites the statements of one function or class."""

    def function(self, node: cst.FunctionDef, twin: ast.FunctionDef) -> cst.FunctionDef:
        """Return a function or method as it stands in the port."""
        decorators, what = self.decorators(node)
        body = self._body(node, twin) if what is None else [self.raising(what, twin.lineno)]
        returns = self.annotation(node.returns)
        return node.with_changes(
            decorators=decorators,
            params=self.parameters(node.params),
            returns=returns,
            body=indented(body),
            leading_lines=[],
            lines_after_decorators=[],
        )

    def _body(self, node: cst.FunctionDef, twin: ast.FunctionDef) -> list[cst.BaseStatement]:
        """Return the body; where a value got lost with the code that made it, what reads it raises, too."""
        bound = bound_names(twin.body) - {found.arg for found in walk_tree(twin.args) if isinstance(found, ast.arg)}
        while True:
            body = self.block(block(node.body), twin.body)
            made = ast.parse(textwrap.dedent(code(indented(body)))).body
            read = {
                n.id for top in made for n in walk_tree(top) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
            }
            lost = (bound - bound_names(made)) & read - self.expressions.lost
            if not lost:
                return body
            self.expressions.lost |= lost

    def block(self, nodes: Sequence[cst.CSTNode], twins: Sequence[ast.stmt]) -> list[cst.BaseStatement]:
        """Return the statements as they stand in the port."""
        found: list[cst.BaseStatement] = []
        for node, twin in pairs(nodes, twins):
            found.extend(self._statement(node, twin))
            if found and ends(found[-1]):
                break
        return found

    # One statement

    def _statement(self, node: cst.CSTNode, twin: ast.stmt) -> list[cst.BaseStatement]:
        self.expressions.clear()
        if isinstance(node, cst.SimpleStatementLine):
            return self._simple(node, twin)
        if isinstance(node, cst.If):
            assert isinstance(twin, ast.If)
            return self._if(node, twin)
        if isinstance(node, cst.FunctionDef) and isinstance(twin, ast.FunctionDef):
            inner = Statements(
                self.engine, Scope.of(self.scope.graph, self.scope.info, twin, outer=self.scope), self.owner, twin
            )
            inner.known.update(self.known)
            return [inner.function(node, twin)]
        if isinstance(node, cst.With) and isinstance(twin, ast.With):
            return self._with(node, twin)
        if isinstance(node, cst.Try) and isinstance(twin, ast.Try):
            return self._try(node, twin)
        if isinstance(node, cst.For) and isinstance(twin, ast.For):
            return self._for(node, twin)
        if isinstance(node, cst.While):
            assert isinstance(twin, ast.While)
            test = self.expressions.rewrite(node.test)
            if self.expressions.problems:
                return [self.problem(twin)]
            if truth(test, self.known) is False:
                return []
            return [node.with_changes(test=test, body=indented(self.block(block(node.body), twin.body)), orelse=None)]
        return [self.raising(f"a {type(node).__name__} statement", twin.lineno)]

    def _simple(self, node: cst.SimpleStatementLine, twin: ast.stmt) -> list[cst.BaseStatement]:
        small = node.body[0]
        if isinstance(small, (cst.Import, cst.ImportFrom, cst.Pass)) or self._is_logging(small):
            return []
        if isinstance(small, (cst.Assign, cst.AnnAssign)) and small.value is not None:
            built = self.assigned_layer(small, twin)
            if built is not None:
                return built
        changed = self._rewritten(small)
        if self.expressions.problems:
            return [self.problem(twin)]
        for name in self.expressions.assumed:
            self.assume(name, twin)
        self._learn(changed, twin)
        tensor = changed_tensor(twin)
        if tensor in self._returned:
            # Gradients of what was computed before want the tensor as it was.
            copy = cst.parse_statement(f"{tensor} = {tensor}.clone()")
            return [cst.ensure_type(copy, cst.SimpleStatementLine), node.with_changes(body=[changed], leading_lines=[])]
        return [node.with_changes(body=[changed])]

    def _rewritten(self, small: cst.BaseSmallStatement) -> cst.BaseSmallStatement:
        if isinstance(small, cst.Assign):
            pair = self.unpacked_layer(small)
            if pair is not None:
                return pair
        if isinstance(small, cst.AnnAssign):
            annotation = self.annotation(small.annotation)
            target = self.expressions.stored(small.target)
            given = self.expressions.rewrite(small.value) if small.value is not None else None
            if annotation is None:
                annotation = cst.Annotation(cst.Name(self.engine.library("typing", "Any")))
            return small.with_changes(target=target, annotation=annotation, value=given)
        changed = small.visit(self.expressions)
        assert isinstance(changed, cst.BaseSmallStatement)
        return changed

    def _learn(self, small: cst.BaseSmallStatement, twin: ast.stmt) -> None:
        """Remember a value that the surroundings decided."""
        if not isinstance(small, cst.Assign) or len(small.targets) != 1 or not self.expressions.decided:
            return
        found = value(small.value, self.known)
        if isinstance(found, Unknown):
            return
        target = small.targets[0].target
        path = dotted(target)
        if path is not None:
            self.engine.answered.add(path.removeprefix("self"))
        if isinstance(target, cst.Name) and self._stores[target.value] == 1:
            self.known[target.value] = found
        elif path is not None and path.startswith("self.") and self.owner is not None:
            if self.engine.assigned_once(self.owner, path.removeprefix("self.")):
                self.owner.known[path] = found
                self.known[path] = found

    def _is_logging(self, small: cst.BaseSmallStatement) -> bool:
        """Tell whether a statement does nothing but log."""
        if not isinstance(small, cst.Expr) or not isinstance(small.value, cst.Call):
            return False
        func = small.value.func
        if not isinstance(func, cst.Attribute) or not isinstance(func.value, cst.Name):
            return False
        origin = self.scope.origin(func.value.value)
        return isinstance(origin, Defined) and self.engine.is_logger(origin)

    # Compound statements

    def _if(self, node: cst.If, twin: ast.If) -> list[cst.BaseStatement]:
        test = self.expressions.rewrite(node.test)
        holds = truth(test, self.known)
        if holds is None and self.expressions.problems:
            return [self.problem(twin)]
        for name in self.expressions.assumed:
            self.assume(name, twin)
        if holds is True:
            return self.block(block(node.body), twin.body)
        other = self.block(branch(node.orelse), twin.orelse) if node.orelse is not None else []
        if holds is False:
            return other
        body = self.block(block(node.body), twin.body)
        if not body and not other:
            return []
        orelse: cst.If | cst.Else | None = None
        if other:
            orelse = other[0] if len(other) == 1 and isinstance(other[0], cst.If) else cst.Else(indented(other))
        if isinstance(orelse, cst.If):
            orelse = orelse.with_changes(leading_lines=[])
        return [node.with_changes(test=test, body=indented(body), orelse=orelse)]

    def _for(self, node: cst.For, twin: ast.For) -> list[cst.BaseStatement]:
        items = self.expressions.rewrite(node.iter)
        if self.expressions.problems:
            return [self.problem(twin)]
        body = self.block(block(node.body), twin.body)
        orelse = cst.Else(indented(self.block(block(node.orelse.body), twin.orelse))) if node.orelse else None
        return [node.with_changes(iter=items, body=indented(body), orelse=orelse)]

    def _with(self, node: cst.With, twin: ast.With) -> list[cst.BaseStatement]:
        kept = []
        for item in node.items:
            if self.does_without(item.item) and not changes_in_place(twin):
                continue
            kept.append(item.with_changes(item=self.expressions.rewrite(item.item)))
        if self.expressions.problems:
            return [self.problem(twin)]
        body = self.block(block(node.body), twin.body)
        if not kept:
            return body
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return [node.with_changes(items=kept, body=indented(body))]

    def _try(self, node: cst.Try, twin: ast.Try) -> list[cst.BaseStatement]:
        first = twin.body[0]
        if isinstance(first, (ast.Import, ast.ImportFrom)) and node.handlers:
            module = first.module or "" if isinstance(first, ast.ImportFrom) else first.names[0].name
            if module.partition(".")[0] in names("ABSENT"):
                return self.block(block(node.handlers[0].body), twin.handlers[0].body)
        body = self.block(block(node.body), twin.body)
        handlers = []
        for handler, other in zip(node.handlers, twin.handlers, strict=True):
            caught = self.expressions.rewrite(handler.type) if handler.type is not None else None
            handlers.append(
                handler.with_changes(type=caught, body=indented(self.block(block(handler.body), other.body)))
            )
        orelse = cst.Else(indented(self.block(block(node.orelse.body), twin.orelse))) if node.orelse else None
        final = node.finalbody
        if final is not None:
            final = final.with_changes(body=indented(self.block(block(final.body), twin.finalbody)))
        if not handlers and final is None:
            return body
        return [node.with_changes(body=indented(body), handlers=handlers, orelse=orelse, finalbody=final)]
