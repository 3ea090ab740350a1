"""Files of the source as libcst sees them, each statement beside its twin of ``ast``, which knows its line."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from scaffold.errors import ScaffoldError
from scaffold.source.modules import ModuleGraph, ModuleInfo


@dataclass(frozen=True)
class Definition:
    """A function, class or assignment at the top of a module, in both trees."""

    module: str
    name: str
    file: str
    node: cst.CSTNode
    twin: ast.stmt


@dataclass
class File:
    """The definitions of one module, by name."""

    info: ModuleInfo
    definitions: dict[str, Definition] = field(default_factory=dict)


class Files:
    """Reads each module of the source once."""

    def __init__(self, graph: ModuleGraph) -> None:
        self.graph = graph
        self._files: dict[str, File] = {}

    def definition(self, module: str, name: str) -> Definition | None:
        """Return the definition; None where the module does not bind the name by a statement of its own."""
        if module not in self._files:
            self._files[module] = self._read(module)
        return self._files[module].definitions.get(name)

    def add(self, module: str, text: str) -> str:
        """Put a function or class beside the definitions of a module, whose names it sees; returns its name."""
        info = self.info(module)
        node, twin = cst.parse_module(text).body[0], ast.parse(text).body[0]
        assert isinstance(node, (cst.FunctionDef, cst.ClassDef))
        self._files[module].definitions[node.name.value] = Definition(module, node.name.value, info.file, node, twin)
        return node.name.value

    def replace(self, module: str, tree: ast.ClassDef) -> None:
        """Put another class in place of a module's own of its name; its nodes keep their lines."""
        name = self.add(module, ast.unparse(tree))
        twin = self._files[module].definitions[name].twin
        for made, given in zip(ast.walk(twin), ast.walk(tree), strict=False):
            if type(made) is not type(given):
                break
            if isinstance(made, (ast.stmt, ast.expr)) and isinstance(given, (ast.stmt, ast.expr)):
                made.lineno, made.end_lineno = given.lineno, given.end_lineno

    def info(self, module: str) -> ModuleInfo:
        """Return what is known about imports of the module."""
        if module not in self._files:
            self._files[module] = self._read(module)
        return self._files[module].info

    def _read(self, module: str) -> File:
        info = self.graph.find(module)
        assert info is not None
        source = self.graph.source
        try:
            tree = cst.parse_module(source.read(info.file))
        except cst.ParserSyntaxError as error:
            where = f"{info.file}:{error.raw_line} in vllm-omni {source.label}"
            raise ScaffoldError(f"{where} cannot be parsed by libcst: {error.message}") from None
        file = File(info)
        _collect(file, tree.body, source.tree(info.file).body)
        return file


def _collect(file: File, nodes: Sequence[cst.CSTNode], twins: Sequence[ast.stmt]) -> None:
    for node, twin in pairs(nodes, twins):
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            _add(file, node.name.value, node, twin)
        elif isinstance(twin, (ast.Assign, ast.AnnAssign)):
            for target in twin.targets if isinstance(twin, ast.Assign) else [twin.target]:
                if isinstance(target, ast.Name) and twin.value is not None:
                    _add(file, target.id, node, twin)
        elif isinstance(node, cst.If) and isinstance(twin, ast.If):
            if node.orelse is not None:
                _collect(file, branch(node.orelse), twin.orelse)
            _collect(file, block(node.body), twin.body)
        elif isinstance(node, cst.Try) and isinstance(twin, ast.Try):
            for handler, other in zip(node.handlers, twin.handlers, strict=True):
                _collect(file, block(handler.body), other.body)
            _collect(file, block(node.body), twin.body)


def _add(file: File, name: str, node: cst.CSTNode, twin: ast.stmt) -> None:
    file.definitions[name] = Definition(file.info.name, name, file.info.file, node, twin)


def block(body: cst.BaseSuite) -> Sequence[cst.CSTNode]:
    """Return the statements of an indented block, or of one on the line of its header."""
    if isinstance(body, cst.SimpleStatementSuite):
        return [cst.SimpleStatementLine(body.body)]
    return list(body.body)


def branch(orelse: cst.If | cst.Else) -> Sequence[cst.CSTNode]:
    """Return the statements of an ``else``; an ``elif`` is one statement."""
    return [orelse] if isinstance(orelse, cst.If) else block(orelse.body)


def pairs(nodes: Sequence[cst.CSTNode], twins: Sequence[ast.stmt]) -> Iterator[tuple[cst.CSTNode, ast.stmt]]:
    """Pair statements of the two trees; several on one line are taken apart."""
    position = 0
    for node in nodes:
        if isinstance(node, cst.SimpleStatementLine):
            for small in node.body:
                alone = (
                    node
                    if len(node.body) == 1
                    else cst.SimpleStatementLine([small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
                )
                yield alone, twins[position]
                position += 1
        else:
            yield node, twins[position]
            position += 1
