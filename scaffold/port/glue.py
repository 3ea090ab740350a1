"""A package's denoiser: upstream's class over plain layers, and how the pipeline builds it."""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Mapping
from typing import Any

from scaffold.port.counterparts import counterparts, executed_files, is_executed
from scaffold.port.names import Defined, External, Origin, Scope
from scaffold.source.modules import ModuleGraph
from scaffold.source.syntax import is_docstring, walk_tree

_ENGINES = ("vllm", "vllm_omni")
# Plain functions of vllm-omni's that are executed where they are, though no denoiser imports them.
_HELPERS = ("vllm_omni.diffusion.utils.", "vllm_omni.transformers_utils.")
_NAMED = (ast.FunctionDef, ast.ClassDef)
DIGITS = 32  # of a digest: of the SHA-256 so many tell one text from another
_RUNTIME = "verl_omni.pipelines.flow_grpo_runtime.upstream"


class Glue:
    """The text of the module, put together name by name.

    What the denoiser's files and plain helpers have is named; the rest of what a function needs is carried over.

    Args:
        graph: modules of the source.
        entry: the denoiser's class.
    """

    def __init__(self, graph: ModuleGraph, entry: Defined) -> None:
        self.graph, self.entry = graph, entry
        self._bound: dict[str, Origin] = {entry.name: entry}
        self._names: dict[Origin, str] = {entry: entry.name}
        self._imports: dict[str, ast.stmt] = {}
        self._texts: dict[str, str] = {}
        self.carried: set[str] = set()  # files of what is carried over
        self.unknown: list[str] = []  # names of the engine's without a counterpart
        self._closed = {_module(file) for file in executed_files(graph, entry.module)}

    def name(self, origin: Defined) -> None:
        """Have a class of upstream's named."""
        if origin not in self._names:
            self._bound[origin.name], self._names[origin] = origin, origin.name

    def add(self, module: str, text: str) -> None:
        """Add a function that sees the names of a module, and what it needs of them."""
        function = ast.parse(text).body[0]
        assert isinstance(function, ast.FunctionDef)
        self._carry(function.name, module, function)

    def _carry(self, name: str, module: str, node: ast.stmt) -> None:
        info = self.graph.find(module)
        assert info is not None
        self.carried.add(info.file)
        self._texts[name] = ""  # it may call itself
        scope = Scope.of(self.graph, info, node)
        bare = _Bare().visit(copy.deepcopy(node))
        renamed = {}
        for found in walk_tree(bare):
            if isinstance(found, ast.Name) and isinstance(found.ctx, ast.Load) and not hasattr(builtins, found.id):
                local = scope.imports.get(found.id)
                if found.id not in scope.hidden and (local is None or local.module.partition(".")[0] in _ENGINES):
                    renamed[found.id] = self._named(found.id, scope)
        made = _Renamed({**renamed, **({node.name: name} if isinstance(node, _NAMED) else {})}).visit(bare)
        if isinstance(made, _NAMED):
            made.name = name
        del self._texts[name]  # behind what it needs
        self._texts[name] = ast.unparse(ast.fix_missing_locations(made))

    def _named(self, name: str, scope: Scope) -> str:
        """Have what a name means in the text; returns the name that it has there."""
        origin = scope.origin(name)
        if origin is None:
            return name
        if origin in self._names:
            return self._names[origin]
        if isinstance(origin, External) and origin.path.partition(".")[0] not in _ENGINES:
            entry = scope.info.imports[name]
            alias = ast.alias(entry.name or entry.module, None if name == (entry.name or entry.module) else name)
            self._imports[name] = (
                ast.Import([alias]) if entry.name is None else ast.ImportFrom(entry.module, [alias], 0)
            )
            return name
        last = origin.name if isinstance(origin, Defined) else origin.path.rpartition(".")[2]
        free = last
        while free in self._names.values():
            free += "_"
        self._names[origin] = free
        node = self._definition(origin) if isinstance(origin, Defined) and not self._is_bound(origin) else None
        if isinstance(origin, Defined) and node is not None:
            self._carry(free, origin.module, node)
        else:
            self._bound[free] = origin
            if not self._is_known(origin):
                self.unknown.append(last)
        return free

    def _definition(self, origin: Defined) -> ast.stmt | None:
        info = self.graph.find(origin.module)
        node = info.definitions.get(origin.name) if info is not None else None
        if isinstance(node, ast.expr):
            return ast.fix_missing_locations(ast.Assign([ast.Name(self._names[origin], ast.Store())], node))
        return node

    def _is_bound(self, origin: Defined) -> bool:
        """Whether its module is executed anyway or is one of plain helpers, or the runtime answers for it."""
        return (
            origin.module in self._closed
            or origin.module.startswith(_HELPERS)
            or bool({origin.name, f"{origin.module}:{origin.name}"} & counterparts().names)
        )

    def _is_known(self, origin: Origin) -> bool:
        return isinstance(origin, Defined) or bool(
            {origin.path.rpartition(".")[2], ":".join(origin.path.rpartition(".")[::2])} & counterparts().names
        )

    def files(self) -> dict[str, str]:
        """Return the files that are executed, with the SHA-256 of each."""
        named = (origin.module for origin in self._bound.values() if isinstance(origin, Defined))
        return executed_files(self.graph, *dict.fromkeys(module for module in named if is_executed(self.graph, module)))

    def text(self, version: str, context: Mapping[str, str] | None) -> str:
        """Return the module, not yet formatted.

        Args:
            version: of vllm-omni.
            context: what the denoiser reads from the engine's context, each with its argument.
        """
        listed = "".join(f"        {file!r}: {made[:DIGITS]!r},\n" for file, made in self.files().items())
        head = (
            f'"""{self.entry.name} of vllm-omni {version}, as it is installed, over plain layers of torch.\n\n'
            f"Training needs vllm-omni {version} with the very text that is named here, and refuses another one.\n"
            '"""\n\nfrom __future__ import annotations\n\n'
        )
        imports = "\n".join(map(ast.unparse, self._imports.values()))
        taken = f"from {_RUNTIME} import Upstream" + (", in_context" if context else "")
        table = (
            f"UPSTREAM = Upstream(\n    {version!r},\n"
            f"    # Files of it that are executed, and how the SHA-256 of each begins.\n    {{\n{listed}    }},\n)\n"
        )
        names = "".join(f"{name} = UPSTREAM({_place(origin)!r})\n" for name, origin in self._bound.items())
        if context:
            entry = self.entry.name
            names += "# What the pipeline hands over in the engine's context is an argument here.\n"
            names += f"{entry} = in_context({entry}, {dict(context)!r})\n"
        texts = [f"\n{text}\n" for text in self._texts.values()]
        return "\n".join([head + imports, taken, "", table, names, *texts])


class _Renamed(ast.NodeTransformer):
    """Gives names the ones that the text has for them."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)


class _Bare(ast.NodeTransformer):
    """Leaves out what only people and type checkers read, and what is written to a log."""

    def visit(self, node: ast.AST) -> Any:
        made = super().visit(node)
        for name in ("body", "orelse", "finalbody"):
            lines = getattr(made, name, None)
            if isinstance(lines, list) and len(lines) > 1:
                kept = [line for line in lines if not isinstance(line, ast.Pass)]
                setattr(made, name, kept or [ast.Pass()])
        return made

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if _is_said(node) else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return ast.Pass() if (node.module or "").partition(".")[0] in _ENGINES else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [line for line in node.body if not (is_docstring(line) or _is_said(line))] or [ast.Pass()]
        node.returns = None
        every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
        for argument in every:
            if argument is not None:
                argument.annotation = None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [line for line in node.body if not is_docstring(line)] or [ast.Pass()]
        return self.generic_visit(node)


def _is_said(node: ast.stmt) -> bool:
    """Whether a statement writes to a log."""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func).startswith("logger.")


def _place(origin: Origin) -> str:
    if isinstance(origin, Defined):
        return f"{origin.module}:{origin.name}"
    module, _, name = origin.path.rpartition(".")
    return f"{module}:{name}"


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
