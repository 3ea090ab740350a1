"""Layers that are assigned to attributes, and assignments of what they return."""

from __future__ import annotations

import ast

import libcst as cst

from scaffold.port.blocks import code, indented, small_assignment
from scaffold.port.headers import Headers
from scaffold.port.layer import Built, UnsupportedError
from scaffold.port.layer_dicts import entries_of
from scaffold.port.layers import ENGINES, kind_of
from scaffold.port.names import Defined, External, dotted


class AssignedLayers(Headers):
    """Rewrites ``self.proj = Layer(…)`` and ``y, _ = self.proj(x)``."""

    def assigned_layer(self, small: cst.Assign | cst.AnnAssign, twin: ast.stmt) -> list[cst.BaseStatement] | None:
        targets = [entry.target for entry in small.targets] if isinstance(small, cst.Assign) else [small.target]
        path = dotted(targets[0])
        if len(targets) != 1 or path is None or self.owner is None or small.value is None:
            return None
        if not path.startswith("self.") or path.count(".") != 1:
            return None
        return self._layer_of(path.removeprefix("self."), small.value, twin)

    def _layer_of(self, name: str, given: cst.BaseExpression, twin: ast.stmt) -> list[cst.BaseStatement] | None:
        if isinstance(given, cst.IfExp):
            return self._chosen_layer(name, given, twin)
        if not isinstance(given, cst.Call):
            return None
        entries = entries_of(given)
        if entries is not None and self.owner is not None and self.engine.mixed_dict(self.owner, name):
            return self._dict_of(name, given, entries, twin)
        origin, _ = self.scope.path(given.func)
        if isinstance(origin, Defined) and not self.engine.followed(origin):
            origin = External(f"{origin.module}.{origin.name}")
        if not isinstance(origin, External) or origin.path.partition(".")[0] not in ENGINES:
            return None
        if kind_of(origin.path) is None:
            return None
        try:
            built = self.expressions.build(origin.path, given, name)
        except UnsupportedError as error:
            return [self.raising(str(error), twin.lineno)]
        if self.expressions.problems:
            return [self.problem(twin)]
        assert self.owner is not None
        lines = [f"self.{part or name} = {text}" for part, text in built.parts]
        lines += self._kept_reads(name, built)
        for inner, parts in built.inside.items():
            self.engine.note_fused(self.owner, inner, parts)
        if built.fused:
            self.engine.note_fused(self.owner, name, tuple(str(part) for part, _ in built.parts))
        return _lines(lines)

    def _kept_reads(self, name: str, built: Built) -> list[str]:
        """Return the assignments of what is read of a layer and its plain one does not have."""
        assert self.owner is not None
        start = f"self.{name.replace('.', '_')}"
        reads = sorted(read for read in built.reads if self.engine.is_read(self.owner, name, read))
        return [f"{start}_{read} = {built.reads[read]}" for read in reads]

    def _dict_of(
        self, name: str, given: cst.Call, entries: list[tuple[str, cst.BaseExpression]], twin: ast.stmt
    ) -> list[cst.BaseStatement]:
        """Return ``self.proj = nn.ModuleDict({"q": …, "k": …})`` for one whose layers are fused, or return pairs."""
        assert self.owner is not None
        made, reads = [], []
        for key, value in entries:
            held = self.engine.layer(self.owner, f"{name}.{key}")
            if held is None or not isinstance(value, cst.Call):
                made.append(f"{key!r}: {code(self.expressions.rewrite(value))}")
                continue
            origin, _ = self.scope.path(value.func)
            path = f"{origin.module}.{origin.name}" if isinstance(origin, Defined) else origin.path if origin else ""
            try:
                built = self.expressions.build(path, value, f"{name}.{key}")
            except UnsupportedError as error:
                return [self.raising(str(error), twin.lineno)]
            made += [f"{(part or key)!r}: {text}" for part, text in built.parts]
            reads += self._kept_reads(f"{name}.{key}", built)
            if built.fused:
                parts = tuple(f"{name}.{part}" for part, _ in built.parts)
                self.engine.note_fused(self.owner, f"{name}.{key}", parts)
        dictionary = f"self.{name} = {code(self.expressions.rewrite(given.func))}({{{', '.join(made)}}})"
        if self.expressions.problems:
            return [self.problem(twin)]
        return _lines([dictionary, *reads])

    def _chosen_layer(self, name: str, given: cst.IfExp, twin: ast.stmt) -> list[cst.BaseStatement] | None:
        body, orelse = (self._layer_of(name, side, twin) for side in (given.body, given.orelse))
        if body is None and orelse is None:
            return None
        test = self.expressions.rewrite(given.test)
        if self.expressions.problems:
            return [self.problem(twin)]
        held = self.engine.layer(self.owner, name) if self.owner is not None else None
        attributes = [str(part or name) for part, _ in held.built.parts] if held else [name]

        def side(made: list[cst.BaseStatement] | None, other: cst.BaseExpression) -> list[cst.BaseStatement]:
            if made is not None:
                return made
            text = code(self.expressions.rewrite(other))
            return [
                cst.ensure_type(cst.parse_statement(f"self.{a} = {text}"), cst.SimpleStatementLine) for a in attributes
            ]

        return [cst.If(test, indented(side(body, given.body)), orelse=cst.Else(indented(side(orelse, given.orelse))))]

    def unpacked_layer(self, small: cst.Assign) -> cst.Assign | None:
        """Return ``y = self.proj(x)`` for ``y, _ = self.proj(x)`` where upstream's layer returns a pair."""
        target = small.targets[0].target
        if len(small.targets) != 1 or not isinstance(target, cst.Tuple) or len(target.elements) != 2:
            return None
        called = self.expressions.layer_call(small.value)
        if called is None or not called[1].built.pairs:
            return None
        return small_assignment(target.elements[0].value, called[0])


def _lines(texts: list[str]) -> list[cst.BaseStatement]:
    return [cst.ensure_type(cst.parse_statement(text), cst.SimpleStatementLine) for text in texts]
