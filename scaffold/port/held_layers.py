"""Which layers of the engine's the classes of a port hold, and what the checkpoint calls their parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from scaffold.port.bindings import Bindings
from scaffold.port.classes import ClassEntry, HeldLayer, built_from, layer_calls, read_class
from scaffold.port.files import Definition
from scaffold.port.layer import Site
from scaffold.port.layer_dicts import reads_of
from scaffold.port.names import Defined, External, Scope
from scaffold.port.result import Fused
from scaffold.port.stacked import Row, parts_of, rows_of
from scaffold.source.modules import ModuleGraph
from scaffold.source.syntax import walk_tree


class HeldLayers(Bindings):
    """The classes of a port and their layers."""

    def __init__(self, graph: ModuleGraph, version: str, stacked: list[Row]) -> None:
        super().__init__(graph, version)
        self.classes: dict[Defined, ClassEntry] = {}
        self.fused: dict[tuple[str, str], Fused] = {}
        self._stacked: dict[str, list[Row]] = {}
        self._given_rows = stacked
        self._reads: dict[str, set[tuple[str, str]]] = {}

    def note_fused(self, owner: ClassEntry, name: str, parts: tuple[str, ...]) -> None:
        """Note which layers stand for a fused one."""
        key = self._order[owner.key]
        self.fused.setdefault((key, name), Fused(key, name, parts))

    def site(self, module: str, attribute: str | None) -> LayerSite:
        """Return where a layer is made, for an attribute or elsewhere."""
        return LayerSite(self, self.parts(module, attribute) if attribute is not None else None)

    def rows(self, module: str) -> list[Row]:
        """Return the stacked parameters of a module's loaders."""
        if module not in self._stacked:
            info = self.files.info(module)
            self._stacked[module] = rows_of(self.graph.source.tree(info.file))
        return self._stacked[module]

    def parts(self, module: str, attribute: str) -> tuple[str, ...] | None:
        """Return the checkpoint's parts of a fused layer: its own module's tables first, then the pipeline's."""
        name = attribute.rpartition(".")[2]
        for rows in (self.rows(module), self._given_rows):
            if any(row[0].strip(".").rpartition(".")[2] == name for row in rows):
                return parts_of(rows, name)
        return None

    def layer(self, owner: ClassEntry, name: str) -> HeldLayer | None:
        """Return the layer of the engine's that an attribute of a class or of its bases holds."""
        for entry in self.mro(owner):
            if name in entry.layers:
                return entry.layers[name]
            if name in entry.methods:
                return None
        return None

    def mixed_dict(self, owner: ClassEntry, name: str) -> bool:
        """Tell whether an attribute is a ``ModuleDict`` whose layers the port calls otherwise than the source does."""
        held = [layer for entry in self.mro(owner) for key, layer in entry.layers.items() if key.startswith(f"{name}.")]
        return any(layer.built.fused or layer.built.pairs for layer in held)

    def layer_anywhere(self, name: str) -> HeldLayer | None:
        """Return the layer that every class of the port that has such an attribute holds there."""
        found: list[HeldLayer] = []
        for entry in self.classes.values():
            if name in entry.layers:
                found.append(entry.layers[name])
            elif name in entry.stores:
                return None
        if not found:
            return None
        first = found[0].built
        same = all(h.built.pairs == first.pairs and h.built.fused == first.fused for h in found)
        return found[0] if same and not first.fused else None

    def is_read(self, owner: ClassEntry, layer: str, name: str) -> bool:
        """Tell whether ``….layer.name`` is read anywhere in the file of a class."""
        file = owner.definition.file
        if file not in self._reads:
            self._reads[file] = {
                (node.value.attr, node.attr)
                for node in walk_tree(self.graph.source.tree(file))
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)
            } | set(reads_of(self.graph.source.tree(file)))
        return (layer, name) in self._reads[file]

    def assigned_once(self, owner: ClassEntry, name: str) -> bool:
        """Tell whether the classes of an object assign an attribute in one place only."""
        return sum(entry.stores[name] for entry in self.mro(owner)) == 1

    def mro(self, entry: ClassEntry) -> Iterator[ClassEntry]:
        """Yield a class and its bases of the source, depth first."""
        yield entry
        for base in entry.bases:
            if isinstance(base, Defined) and base in self.classes:
                yield from self.mro(self.classes[base])

    def enter_class(self, key: Defined, definition: Definition) -> ClassEntry:
        """Read a class, its bases of the source before it, and find the layers that it holds."""
        if key in self.classes:
            return self.classes[key]
        info = self.files.info(key.module)
        assert isinstance(definition.twin, ast.ClassDef)
        scope = Scope(self.graph, info)
        entry = read_class(key, definition, scope, self.followed)
        self.classes[key] = entry
        for base in entry.bases:
            if isinstance(base, Defined) and self.followed(base):
                found = self.files.definition(base.module, base.name)
                if found is not None and isinstance(found.node, cst.ClassDef):
                    self.enter_class(base, found)
                    self.reference(base)
        for attribute, call in layer_calls(entry):
            path = self._path(call.func, entry)
            built = built_from(call, path, self.parts(key.module, attribute)) if path is not None else None
            if built is not None:
                entry.layers.setdefault(attribute, HeldLayer(attribute, built))
        return entry

    def _path(self, func: ast.expr, entry: ClassEntry) -> str | None:
        scope = Scope.of(self.graph, self.files.info(entry.key.module), ast.Module([], []))
        origin, rest = scope.path(cst.parse_expression(ast.unparse(func)))
        if isinstance(origin, Defined) and not rest and not self.followed(origin):
            return f"{origin.module}.{origin.name}"
        return origin.path if isinstance(origin, External) else None


class LayerSite(Site):
    """Where a layer is made, during the port."""

    def __init__(self, engine: HeldLayers, parts: tuple[str, ...] | None) -> None:
        super().__init__(parts)
        self._engine = engine

    def support(self, module: str, name: str) -> str:
        """Ask for one of our own classes."""
        return self._engine.support(module, name)
