"""The closure of what a denoiser needs: definitions are ported one by one until none asks for another."""

from __future__ import annotations

import ast
import textwrap

import libcst as cst

from scaffold.port.blocks import code
from scaffold.port.classes import ClassEntry
from scaffold.port.constants import Unknown, value
from scaffold.port.context_arguments import ContextArguments, with_context_arguments
from scaffold.port.expressions import Expressions
from scaffold.port.files import Definition
from scaffold.port.held_layers import HeldLayers
from scaffold.port.layers import ENGINES, kind_of
from scaffold.port.names import Defined, Scope
from scaffold.port.one_device import names
from scaffold.port.stacked import Row
from scaffold.port.statements import Statements
from scaffold.source.modules import ModuleGraph
from scaffold.source.syntax import walk_tree

# Methods that anything may call without naming them, and those that no training module calls.
ALWAYS = frozenset({"__init__", "forward", "__call__", "__post_init__", "forward_native"})
LOADER = "load_weights"
READER = "from_pretrained"
NEVER = frozenset({LOADER, READER, "dispatch_forward", "forward_cuda", "forward_hip", "forward_npu",
                   "forward_xpu", "forward_musa"})  # fmt: skip
# Bases of classes that hold settings.
_PLAIN = ("Config", "typing.NamedTuple", "enum.Enum", "abc.ABC", "typing.Protocol")
# The library whose configurations read class attributes of what derives from them.
_READS = "transformers."


class Engine(HeldLayers):
    """State of one port."""

    def __init__(self, graph: ModuleGraph, version: str, stacked: list[Row]) -> None:
        super().__init__(graph, version, stacked)
        self.results: dict[Defined, cst.BaseStatement | None] = {}
        self.ported: dict[Defined, dict[str, cst.FunctionDef]] = {}
        self.lines: dict[Defined, dict[int, list[cst.BaseStatement]]] = {}
        self.attributes = set(ALWAYS)
        self.loaders: set[Defined] = set()
        self.keep_loaders = False  # of whatever module has one
        self.predicts: tuple[Defined, str] | None = None
        self.context: ContextArguments | None = None
        self._decided: dict[Defined, str | None] = {}
        self._without: dict[Defined, str] = {}

    # Values

    def is_logger(self, origin: Defined) -> bool:
        """Tell whether a module's global is a logger."""
        found = self.files.definition(origin.module, origin.name)
        if found is None or not isinstance(found.twin, ast.Assign) or not isinstance(found.twin.value, ast.Call):
            return False
        func = found.twin.value.func
        return (func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")) in (
            *names("LOGGERS"),
            "getLogger",
        )

    def decided(self, origin: Defined) -> str | None:
        """Return the literal of a module's global that the surroundings decide, such as whether kernels are there."""
        if origin not in self._decided:
            self._decided[origin] = None
            found = self.files.definition(origin.module, origin.name)
            if found is not None and isinstance(found.twin, (ast.Assign, ast.AnnAssign)):
                self._decided[origin] = self._evaluated(origin, found)
        return self._decided[origin]

    def without(self, origin: Defined) -> str | None:
        """Return what a definition of the source needs and has no counterpart; None where it can be made.

        That is something in the value of a module's global, or the layer of the engine's that a class derives from.
        """
        found = self.files.definition(origin.module, origin.name)
        if found is not None and isinstance(found.node, cst.ClassDef):
            layer = self.engine_layer(self.enter_class(origin, found))
            return f"{layer} as a base of {origin.name}" if layer is not None else None
        self.decided(origin)
        return self._without.get(origin)

    def engine_layer(self, entry: ClassEntry) -> str | None:
        """Return the layer of the engine's that a class derives from, whose text is not carried over."""
        foreign = [base for owner in self.mro(entry) for base in owner.bases if isinstance(base, str)]
        engines = [base for base in foreign if base.partition(".")[0] in ENGINES]
        layers = [base for base in engines if kind_of(base) is not None]
        if not layers and len(engines) == len(foreign):
            layers = engines  # nothing else that it could be
        return layers[0].rpartition(".")[2] if layers else None

    def _evaluated(self, origin: Defined, found: Definition) -> str | None:
        assert isinstance(found.node, cst.SimpleStatementLine)
        small = found.node.body[0]
        if not isinstance(small, (cst.Assign, cst.AnnAssign)) or small.value is None:
            return None
        scope = Scope(self.graph, self.files.info(origin.module))
        probe = Expressions(self, scope, None, {})
        with self.probing():
            expression = probe.rewrite(small.value)
        if probe.problems:
            self._without[origin] = probe.problems[0]
        known = value(expression, {})
        if not probe.decided or isinstance(known, Unknown) or not isinstance(known, bool | int | None):
            return None
        return repr(known)

    # The closure

    def keep_loader(self, entry: Defined) -> bool:
        """Take over how a class places weights of the checkpoint; tells whether it does so itself."""
        found = self.files.definition(entry.module, entry.name)
        if found is None or not isinstance(found.node, cst.ClassDef):
            return False
        self.reference(entry)
        owner = next((c for c in self.mro(self.enter_class(entry, found)) if LOADER in c.methods), None)
        if owner is None:
            return False
        self.loaders.add(owner.key)
        self.attributes.add(LOADER)
        return True

    def run(self, *entries: Defined) -> None:
        """Port definitions and all that they need."""
        for entry in entries:
            self.reference(entry)
        while True:
            while self._pending:
                self._port(self._pending.pop(0))
            if not self._more_methods() and not self._pending:
                return

    def is_module(self, entry: ClassEntry) -> bool:
        """Tell whether a class may be a module: all of its bases that are not of the source would have to be none."""
        foreign = (base for owner in self.mro(entry) for base in owner.bases if base not in self.classes)
        return any(not (isinstance(base, str) and base.endswith(_PLAIN)) for base in foreign)

    def _port(self, origin: Defined) -> None:
        found = self.files.definition(origin.module, origin.name)
        if found is None:
            self.results[origin] = None
            self.gap(f"{origin.name}, which is bound by no statement", self.files.info(origin.module).file, 1)
            return
        if isinstance(found.node, cst.ClassDef):
            self.enter_class(origin, found)
            self.ported.setdefault(origin, {})
            return
        info = self.files.info(origin.module)
        if isinstance(found.node, cst.FunctionDef):
            if not isinstance(found.twin, ast.FunctionDef):
                bare = Statements(self, Scope(self.graph, info), None, found.twin)
                self.results[origin] = bare.raising(f"the asynchronous function {origin.name}", found.twin.lineno)
                return
            scope = Scope.of(self.graph, info, found.twin)
            result: cst.BaseStatement = Statements(self, scope, None, found.twin).function(found.node, found.twin)
        else:
            scope = Scope(self.graph, info)
            lines = Statements(self, scope, None, found.twin).block([found.node], [found.twin])
            result = lines[0]
        self.results[origin] = result
        self._note_attributes(result)

    def _more_methods(self) -> bool:
        """Port the methods that something now names; tell whether there were any."""
        any_new = False
        for origin in list(self.ported):
            entry = self.classes[origin]
            ordered = sorted(entry.methods, key=lambda name: name != "__init__")
            for name in ordered:
                if name == LOADER and self.keep_loaders and self.is_module(entry):
                    self.loaders.add(origin)
                    self.attributes.add(LOADER)
                taken = (name == LOADER and origin in self.loaders) or (name == READER and not self.is_module(entry))
                left_out = name in NEVER and not taken
                if name in self.ported[origin] or left_out or name not in self.attributes:
                    continue
                node, twin = self._with_arguments(entry, name)
                scope = Scope.of(self.graph, self.files.info(origin.module), twin)
                ported = Statements(self, scope, entry, twin).function(node, twin)
                self.ported[origin][name] = ported
                self._note_attributes(ported)
                any_new = True
            any_new |= self._more_lines(origin, entry)
        return any_new

    def _with_arguments(self, entry: ClassEntry, name: str) -> tuple[cst.FunctionDef, ast.FunctionDef]:
        """Both trees of a method; what the one that predicts reads from the engine's context, it is given."""
        node, twin = entry.methods[name]
        if (entry.key, name) != self.predicts:
            return node, twin
        scope = Scope.of(self.graph, self.files.info(entry.key.module), twin)
        found = with_context_arguments(node, twin, scope)
        if found is None:
            return node, twin
        self.context = found
        return found.node, found.twin

    def _more_lines(self, origin: Defined, entry: ClassEntry) -> bool:
        """Port the class attributes that something names, and all of a dataclass or of a library's configuration."""
        done = self.lines.setdefault(origin, {})
        everything = is_dataclass(entry.twin) or any(
            isinstance(base, str) and base.startswith(_READS) and base.endswith("Config")
            for owner in self.mro(entry)
            for base in owner.bases
        )
        any_new = False
        for index, (node, twin) in enumerate(entry.statements):
            if index in done or not isinstance(twin, (ast.Assign, ast.AnnAssign)):
                continue
            targets = twin.targets if isinstance(twin, ast.Assign) else [twin.target]
            named = {target.id for target in targets if isinstance(target, ast.Name)}
            if everything or named & self.attributes:
                scope = Scope(self.graph, self.files.info(origin.module), _class_names(entry))
                done[index] = Statements(self, scope, entry, twin).block([node], [twin])
                for line in done[index]:
                    self._note_attributes(line)
                any_new = True
        return any_new

    def _note_attributes(self, node: cst.CSTNode) -> None:
        tree = ast.parse(textwrap.dedent(code(node)))
        for found in walk_tree(tree):
            if isinstance(found, ast.Attribute):
                self.attributes.add(found.attr)
            elif isinstance(found, ast.Constant) and isinstance(found.value, str) and found.value.isidentifier():
                self.attributes.add(found.value)  # getattr(module, "name")


def is_dataclass(node: ast.ClassDef) -> bool:
    """Tell whether a class is decorated as one of data."""
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def _class_names(entry: ClassEntry) -> frozenset[str]:
    """Names that the class body itself binds; its statements see those first."""
    return frozenset(
        node.id
        for _, twin in entry.statements
        if isinstance(twin, (ast.Assign, ast.AnnAssign))
        for node in walk_tree(twin)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
