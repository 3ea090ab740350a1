"""A method or function of upstream's in which a step of ours takes the place of the sample's update."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from scaffold.errors import ScaffoldError
from scaffold.port.method import free_names, port_method
from scaffold.source.modules import ModuleGraph
from scaffold.source.syntax import walk_tree

SCHEDULER, UPDATE = "sde_scheduler", "own_update"


@dataclass(frozen=True)
class PortedLoop:
    """The function as source text.

    Attributes:
        text: of a function at the top of a module; a method takes ``self``.
        imports: statements that bind the names of its module that it uses.
        typing_imports: those of names that only annotations use.
    """

    text: str
    imports: tuple[str, ...]
    typing_imports: tuple[str, ...]


def port_region(
    graph: ModuleGraph, module: str, source: str, owner: str | None, parts: Mapping[str, Any]
) -> PortedLoop:
    """Take a function over; its update becomes a function inside, which a scheduler of ours is given.

    The scheduler is the attribute ``sde_scheduler`` of ``self``; a function without a class gets it as an argument.

    Args:
        graph: modules of the source.
        module: dotted name of the module that the text stands in.
        source: text of the function.
        owner: class that it is a method of; None for a function of the module.
        parts: where the update stands in it, and its names: value of the fact ``detail.region.parts``.

    Raises:
        ScaffoldError: the text cannot be taken over.
    """
    text = textwrap.dedent(source).strip("\n") + "\n"
    function = parts["function"]
    taken = {node.id for node in walk_tree(ast.parse(text)) if isinstance(node, ast.Name)} & {SCHEDULER, UPDATE}
    if taken:
        raise ScaffoldError(f"{function} of {module} has a name {taken.pop()!r} of its own")
    edit = _Replacer(parts, f"self.{SCHEDULER}" if owner is not None else SCHEDULER)
    changed = MetadataWrapper(cst.parse_module(text)).visit(edit)
    if not edit.done:
        raise ScaffoldError(f"{function} of {module} has no update in lines {parts['first']} to {parts['last']}")
    if owner is None:
        changed = changed.visit(_Parameter(function))
    ported = port_method(changed.code, owner or module, {})
    needed = _needed_at_run_time(ported.text)
    info = graph.find(module)
    assert info is not None
    statements = {name: _import(graph, module, name) for name in ported.names if name not in ("Any", "__future__")}
    return PortedLoop(
        ported.text,
        tuple(text for name, text in statements.items() if name in needed),
        tuple(text for name, text in statements.items() if name not in needed),
    )


def _needed_at_run_time(text: str) -> set[str]:
    """Names that a function needs beside those of its annotations."""
    tree = ast.parse(text)
    for node in walk_tree(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            for argument in every:
                if argument is not None:
                    argument.annotation = None
    return set(free_names(ast.unparse(ast.fix_missing_locations(tree))))


def _import(graph: ModuleGraph, module: str, name: str) -> str:
    """The statement that binds what a name means in a module: a library's as the module does, else from the module."""
    info = graph.find(module)
    assert info is not None
    entry = info.imports.get(name)
    if entry is None or entry.module.partition(".")[0] == module.partition(".")[0]:
        return f"from {module} import {name}"
    if entry.name is None:
        return f"import {entry.module}" + ("" if name == entry.module.partition(".")[0] else f" as {name}")
    return f"from {entry.module} import {entry.name}" + ("" if name == entry.name else f" as {name}")


class _Replacer(cst.CSTTransformer):
    """Moves the statements of the update into a function and calls the scheduler with it."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, parts: Mapping[str, Any], scheduler: str) -> None:
        super().__init__()
        self.parts, self.scheduler, self.done = parts, scheduler, False

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        starts = [self._line(node) for node in original_node.body]
        if self.done or self.parts["first"] not in starts:
            return updated_node
        first = starts.index(self.parts["first"])
        last = max(i for i, line in enumerate(starts) if line <= self.parts["last"])
        body = list(updated_node.body)
        self.done = True
        return updated_node.with_changes(body=[*body[:first], *self._step(body[first : last + 1]), *body[last + 1 :]])

    def _line(self, node: cst.BaseStatement) -> int:
        return int(self.get_metadata(PositionProvider, node).start.line)

    def _step(self, own: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
        sample, output = self.parts["sample"], self.parts["output"]
        given = "".join(f", {name}={name}" for name in self.parts["bound"])
        header = cst.ensure_type(
            cst.parse_statement(f"def {UPDATE}({sample}, {output}{given}):\n    pass\n"), cst.FunctionDef
        )
        end = cst.ensure_type(cst.parse_statement(f"return {sample}"), cst.SimpleStatementLine)
        leading = getattr(own[0], "leading_lines", ())
        inner = [own[0].with_changes(leading_lines=()), *own[1:], end]
        called = f"{sample} = {self.scheduler}.update({UPDATE}, {sample}, {output})"
        call = cst.ensure_type(cst.parse_statement(called), cst.SimpleStatementLine)
        return [
            header.with_changes(body=cst.IndentedBlock(inner), leading_lines=leading),
            call.with_changes(leading_lines=[cst.EmptyLine(indent=False)]),
        ]


class _Parameter(cst.CSTTransformer):
    """Gives a function the scheduler as its last argument, by name."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self.function = function

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        if updated_node.name.value != self.function:
            return updated_node
        given = updated_node.params
        parameter = cst.Param(cst.Name(SCHEDULER), cst.Annotation(cst.Name("Any")), comma=cst.MaybeSentinel.DEFAULT)
        star = given.star_arg
        if isinstance(star, cst.MaybeSentinel) and not given.kwonly_params:
            star = cst.ParamStar()
        return updated_node.with_changes(
            params=given.with_changes(kwonly_params=[*given.kwonly_params, parameter], star_arg=star)
        )
