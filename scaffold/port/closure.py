"""What a denoiser needs of vllm-omni's source, as one syntax tree to be read; nobody executes or renders it.

Linear layers of the engine's are ``nn.Linear`` in it, one for each tensor of the checkpoint, and its other layers are
those of the runtime: whoever reads the tree finds the modules that training has.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from scaffold.port.context_arguments import read_elsewhere
from scaffold.port.counterparts import Counterparts, counterparts, is_executed
from scaffold.port.layer_lists import MADE
from scaffold.port.names import Defined, External, Origin, Scope, resolve
from scaffold.port.own_model import OwnModel
from scaffold.port.result import Assumption, Fused, Gap
from scaffold.port.unset import Row, parts_of, rows_of, without_unset
from scaffold.source.modules import ModuleGraph, ModuleInfo
from scaffold.source.syntax import is_docstring, is_own, walk_tree

# Methods that anything may call without naming them, and those that no training module calls.
ALWAYS = frozenset({"__init__", "forward", "__call__", "__post_init__", "forward_native"})
LOADER, READER = "load_weights", "from_pretrained"
NEVER = frozenset({LOADER, READER, "dispatch_forward", "forward_cuda", "forward_hip", "forward_npu", "forward_xpu",
                   "forward_musa"})  # fmt: skip
_ENGINES = frozenset({"vllm", "vllm_omni"})
# Before the names of the runtime's classes, so that none is that of upstream's.
_PLAIN = "Plain"
# What the engine's gated MLP fuses, by the name of the layer in it.
_GATED = ("gate_up_proj", ("gate_proj", "up_proj"))
# Classes whose attributes count though nothing names them: a library reads them.
_CONFIGURATION = "Config"


class Closure:
    """Definitions that lead from a denoiser's class to each other.

    Args:
        graph: modules of the source.
        entry: the class.
        methods: names of those that are called from outside, beside ``forward``.
        stacked: rows ``(parameter, part, shard)`` of the pipeline's loader, used where a module's own has none.
        own: given where the class is the pipeline itself: what is left of it.

    Attributes:
        tree: the definitions, each under a name of its own, behind the imports of libraries.
        source: its text.
        names: under which each stands.
        origins: what stands under each name.
        classes: those that are classes of the source, in the order of the text.
        fused: layers of the engine's that stand for several of the checkpoint's.
        files: that the definitions stand in.
        gaps: names of the engine's that the definitions use and for which the runtime has no counterpart.
    """

    def __init__(
        self,
        graph: ModuleGraph,
        entry: Defined,
        methods: Iterable[str],
        stacked: Sequence[Row] = (),
        own: OwnModel | None = None,
    ) -> None:
        self.graph, self.entry, self._stacked, self._own = graph, entry, list(stacked), own
        self.names: dict[Defined, str] = {}
        self._attributes = {*ALWAYS, *methods} - NEVER
        self._read: set[tuple[Defined, str]] = set()
        self._enter(entry)
        while self._grows():
            pass
        self._fill()

    def method(self, name: str) -> tuple[ast.FunctionDef, Scope] | None:
        """A method of the denoiser, of its own or of a base, and the names that it sees; None where it has none."""
        found = self._found(name)
        return None if found is None else (found[1], Scope.of(self.graph, self.info(found[0]), found[1]))

    def loader(self) -> tuple[str, int, int] | None:
        """File, first and last line of the method by which the denoiser places weights; None where it has none."""
        found = self._found(LOADER)
        return None if found is None else (self.info(found[0]).file, found[1].lineno, found[1].end_lineno or 0)

    def _found(self, name: str) -> tuple[Defined, ast.FunctionDef] | None:
        for origin in self.lineage(self.entry):
            for node in getattr(self._node(origin), "body", ()):
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    return origin, node
        return None

    def assumptions(self, given: str) -> tuple[Assumption, ...]:
        """What is read from the engine's context, which training does not have.

        Args:
            given: the method of the denoiser that gets it as arguments; empty where there is none.
        """
        apart = self._found(given) if given else None
        found: dict[tuple[str, int], Assumption] = {}
        for origin in self.names:
            file = self.info(origin).file
            for part in self._parts(origin):
                if isinstance(part, ast.FunctionDef) and (apart is None or part is not apart[1]):
                    for name, line in read_elsewhere(part, Scope.of(self.graph, self.info(origin), part)):
                        found.setdefault((file, line), Assumption(f"get_forward_context().{name}", file, line))
        return tuple(found[key] for key in sorted(found))

    def inner_loader(self) -> bool:
        """Whether a module of the source, other than the denoiser, has such a method."""
        classes = (self._node(origin) for origin in self.names if origin not in self.lineage(self.entry))
        return any(isinstance(node, ast.FunctionDef) and node.name == LOADER
                   for kind in classes for node in getattr(kind, "body", ()))  # fmt: skip

    def lineage(self, origin: Defined) -> list[Defined]:
        """A class and its bases of the source, depth first."""
        found, node = [origin], self._node(origin)
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            above = self.origin(Scope(self.graph, self.info(origin)), base)
            if isinstance(above, Defined) and above not in found and self._is_followed(above):
                found += self.lineage(above)
        return found

    def info(self, origin: Defined) -> ModuleInfo:
        """The module of a definition."""
        found = self.graph.find(origin.module)
        assert found is not None
        return found

    def origin(self, scope: Scope, node: ast.expr) -> Origin | None:
        """What a name means, or an attribute of a module."""
        if isinstance(node, ast.Name):
            return scope.origin(node.id)
        if isinstance(node, ast.Attribute):
            above = self.origin(scope, node.value)
            if isinstance(above, External):
                if self.graph.find(above.path) is not None:
                    return resolve(self.graph, above.path, node.attr) or External(f"{above.path}.{node.attr}")
                return External(f"{above.path}.{node.attr}")
        return None

    # What belongs to it

    def _grows(self) -> bool:
        before = len(self.names), len(self._attributes), len(self._read)
        for origin in list(self.names):
            for part in self._parts(origin):
                self._look(origin, part)
        return before != (len(self.names), len(self._attributes), len(self._read))

    def _enter(self, origin: Defined) -> None:
        if origin in self.names:
            return
        name, number = origin.name, 2
        while name in self.names.values():
            name, number = f"{origin.name}_{number}", number + 1
        self.names[origin] = name

    def _is_followed(self, origin: Defined) -> bool:
        answered = f"{origin.module}:{origin.name}" in counterparts().names
        return not answered and is_executed(self.graph, origin.module) and self._node(origin) is not None

    def _node(self, origin: Defined) -> ast.stmt | None:
        if self._own is not None and origin == self.entry:
            return self._own.tree
        info = self.graph.find(origin.module)
        found = info.definitions.get(origin.name) if info is not None else None
        if isinstance(found, ast.expr):
            assigned = ast.Assign([ast.copy_location(ast.Name(origin.name, ast.Store()), found)], found)
            return ast.copy_location(assigned, found)
        return found

    def _parts(self, origin: Defined) -> Iterator[ast.stmt | ast.expr]:
        """Yield what counts of a definition: of a class the methods and attributes that something names."""
        node = self._node(origin)
        if not isinstance(node, ast.ClassDef):
            if node is not None:
                yield node
            return
        yield from (*node.bases, *node.decorator_list)
        everything = is_dataclass(node) or any(ast.unparse(base).endswith(_CONFIGURATION) for base in node.bases)
        is_module = not everything
        for part in node.body:
            if isinstance(part, ast.FunctionDef):
                taken = part.name in self._attributes and (part.name not in NEVER)
                if taken or (part.name == READER and not is_module and READER in self._attributes):
                    yield part
            elif isinstance(part, (ast.Assign, ast.AnnAssign)):
                targets = part.targets if isinstance(part, ast.Assign) else [part.target]
                if everything or any(isinstance(t, ast.Name) and t.id in self._attributes for t in targets):
                    yield part

    def _look(self, origin: Defined, part: ast.stmt | ast.expr) -> None:
        key = (origin, f"{part.lineno}:{part.col_offset}:{type(part).__name__}")
        if key in self._read:
            return
        self._read.add(key)
        scope = Scope.of(self.graph, self.info(origin), part)
        for node in _without_annotations(part):
            if isinstance(node, ast.Attribute):
                self._attributes.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                self._attributes.add(node.value)  # getattr(module, "name")
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                found = self.origin(scope, node)
                if isinstance(found, Defined) and self._is_followed(found):
                    self._enter(found)

    # The tree

    def _fill(self) -> None:
        self._fused: dict[tuple[str, str], Fused] = {}
        self._imports: dict[str, ast.stmt] = {}
        self.layers: set[str] = set()
        self._gaps: dict[tuple[str, int], Gap] = {}
        made = []
        for origin, name in self.names.items():
            node = copy.copy(self._node(origin))
            if isinstance(node, ast.ClassDef):
                kept = [part for part in self._parts(origin) if isinstance(part, ast.stmt)]
                node.body = [*kept] or [ast.Pass()]
            if node is None:
                continue
            plain = _Plain(self, origin, name)
            node = plain.visit(copy.deepcopy(node))
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                node.name = name
            made.append(node)
        self.fused = tuple(self._fused[key] for key in sorted(self._fused))
        body = [*self._imports.values(), *_layer_classes(self.layers), *made]
        self.tree = without_unset(ast.Module(body, []))
        self.source = ast.unparse(self.tree)
        self.origins = {name: origin for origin, name in self.names.items()}
        self.gaps = tuple(self._gaps[key] for key in sorted(self._gaps))
        self.classes = tuple(node.name for node in made if isinstance(node, ast.ClassDef))
        self.files = tuple(sorted({self.info(origin).file for origin in self.names}))

    def parts(self, origin: Defined, attribute: str) -> tuple[str, ...] | None:
        """The checkpoint's parts of a fused layer: the tables of its own module first, then the pipeline's."""
        for rows in (rows_of(self.graph.source.tree(self.info(origin).file)), self._stacked):
            if any(row[0].strip(".").rpartition(".")[2] == attribute for row in rows):
                return parts_of(rows, attribute)
        return None

    def engine_name(self, origin: Origin | None) -> str | None:
        """The last part of what is the engine's and not followed; None for anything else."""
        if isinstance(origin, Defined):
            return None if self._is_followed(origin) else origin.name
        if isinstance(origin, External) and origin.path.partition(".")[0] in _ENGINES:
            return origin.path.rpartition(".")[2]
        return None

    def library(self, alias: str, scope: Scope) -> None:
        """Note the import of a library that a module's name stands for."""
        entry = scope.info.imports.get(alias)
        if entry is None or alias in scope.imports or alias in scope.hidden or alias in self._imports:
            return
        short = ast.alias(entry.name or entry.module, None if alias == (entry.name or entry.module) else alias)
        self._imports[alias] = ast.Import([short]) if entry.name is None else ast.ImportFrom(entry.module, [short], 0)

    def lacks(self, name: str, file: str, line: int) -> None:
        """Note that a name of the engine's has no counterpart."""
        self._gaps.setdefault((file, line), Gap(name, file, line, self.graph.source.version or self.graph.source.label))

    def fuse(self, owner: str, name: str, parts: tuple[str, ...]) -> None:
        """Note which layers stand for a fused one."""
        self._fused.setdefault((owner, name), Fused(owner, name, parts))


class _Plain(ast.NodeTransformer):
    """Puts the closure's names in place of a module's, and plain layers in place of the engine's."""

    def __init__(self, closure: Closure, origin: Defined, name: str) -> None:
        self.closure, self.key, self.owner = closure, origin, name
        self.scopes = [Scope(closure.graph, closure.info(origin))]
        self.known: Counterparts = counterparts()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outer = self.scopes[-1] if len(self.scopes) > 1 else None
        self.scopes.append(Scope.of(self.closure.graph, self.closure.info(self.key), node, outer=outer))
        node.body = [line for line in node.body if not is_docstring(line)] or [ast.Pass()]
        node.returns = None
        made = self.generic_visit(node)
        self.scopes.pop()
        return made

    def visit_Assign(self, node: ast.Assign) -> Any:
        target, call = node.targets[0], node.value
        if isinstance(call, ast.Call) and is_own(target):
            name = self.closure.engine_name(self.closure.origin(self.scopes[-1], call.func))
            if name and self.known.kinds.get(name) == "GatedMLP":
                self.closure.fuse(self.owner, *_GATED)
            parts = self.closure.parts(self.key, target.attr) if name and self.known.is_fused(name) else None
            if parts:
                self.closure.fuse(self.owner, target.attr, parts)
                self.generic_visit(call)
                linear = ast.parse("nn.Linear()", mode="eval").body
                return [
                    ast.copy_location(ast.Assign([ast.Attribute(target.value, part, ast.Store())], linear), node)
                    for part in parts
                ]
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if node.bases and all(self._is_unanswered(base) for base in node.bases):
            self._lacks(node.bases[0])
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self._is_unanswered(node.func):
            self._lacks(node.func)
        if self.closure.engine_name(self.closure.origin(self.scopes[-1], node.func)) == "make_layers":
            node.func, node.args = ast.copy_location(ast.Name(MADE, ast.Load()), node.func), node.args[:2]
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = self.visit(node.value) if node.value is not None else None
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node

    def _is_unanswered(self, node: ast.expr) -> bool:
        """Whether this is a name of the engine's without a counterpart."""
        origin = self.closure.origin(self.scopes[-1], node)
        name = self.closure.engine_name(origin)
        if name is None or name in self.known.names:
            return False
        if isinstance(node, ast.Attribute) and self.closure.engine_name(
            self.closure.origin(self.scopes[-1], node.value)
        ):
            return self._is_unanswered(node.value)
        module = origin.module if isinstance(origin, Defined) else getattr(origin, "path", "").rpartition(".")[0]
        return f"{module}:{name}" not in self.known.names

    def _lacks(self, node: ast.expr) -> None:
        self.closure.lacks(ast.unparse(node), self.closure.info(self.key).file, node.lineno)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._meant(node) if isinstance(node.ctx, ast.Load) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and isinstance(node.value, (ast.Name, ast.Attribute)):
            found = self._meant(node)
            if found is not node:
                return found
        return self.generic_visit(node)

    def _meant(self, node: ast.Name | ast.Attribute) -> ast.expr:
        scope = self.scopes[-1]
        origin = self.closure.origin(scope, node)
        if isinstance(origin, Defined) and origin in self.closure.names:
            return ast.copy_location(ast.Name(self.closure.names[origin], ast.Load()), node)
        name = self.closure.engine_name(origin)
        if name is not None and name in self.known.kinds:
            plain = self.known.is_linear(name) or self.known.is_fused(name)
            if plain:
                return ast.copy_location(ast.Attribute(ast.Name("nn", ast.Load()), "Linear", ast.Load()), node)
            self.closure.layers.add(self.known.kinds[name])
            return ast.copy_location(ast.Name(_PLAIN + self.known.kinds[name], ast.Load()), node)
        if isinstance(node, ast.Name) and isinstance(origin, External) and name is None:
            self.closure.library(node.id, scope)
        return node


def is_dataclass(node: ast.ClassDef) -> bool:
    """Tell whether a class is decorated as one of data."""
    return any("dataclass" in ast.unparse(made) for made in node.decorator_list)


def _layer_classes(names: Iterable[str]) -> list[ast.ClassDef]:
    """The runtime's classes of those names, and those that they are made of."""
    known, found, waiting = counterparts().classes, dict[str, ast.ClassDef](), sorted(names)
    while waiting:
        name = waiting.pop(0)
        if name in known and name not in found:
            made = found[name] = copy.deepcopy(known[name])
            made.name = _PLAIN + name
            for node in walk_tree(made):
                if isinstance(node, ast.Name) and node.id in known:
                    waiting.append(node.id)
                    node.id = _PLAIN + node.id
    return list(found.values())


def _without_annotations(part: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a definition that are looked at when it runs."""
    pending: list[ast.AST] = [part]
    while pending:
        node = pending.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            pending += [
                child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST)
            ]
