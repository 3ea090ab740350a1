"""Establishes whether training can load the checkpoint as the pipeline does, and which attribute holds the denoiser."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scaffold.grade.established import Established
from scaffold.port import Port
from scaffold.source.modules import ModuleGraph
from scaffold.source.syntax import walk_tree
from scaffold.upstream import UpstreamSource

LOADER = "load_weights"
_PLACING = frozenset({"weight_loader", "default_weight_loader", "copy_"})


@dataclass(frozen=True)
class Loading:
    """How the weights are loaded.

    Attributes:
        attribute: the pipeline's attribute that holds the denoiser; empty if unknown, or if the pipeline is the
            denoiser.
        established: whether the ported code builds the denoiser and places every weight as the pipeline does.
    """

    attribute: str = ""
    established: bool = False
    own: bool = False  # the pipeline is its own denoiser
    stopped: tuple[str, str] | None = None  # ``file:line`` and reason if it is not established

    @property
    def located(self) -> bool:
        """Whether it is known where the rollout engine holds the denoiser."""
        return bool(self.attribute) or self.own

    def section(self) -> dict[str, Any]:
        """Return the section of the spec."""
        return {"attribute": self.attribute, "established": self.established}


def find_loading(facts: Established, source: UpstreamSource) -> Loading:
    """Return how a pipeline loads its weights.

    The pipeline's own loader must pass the checkpoint's names and tensors to the denoiser unchanged, apart from the
    attribute's prefix; what the denoiser's loader does with them is part of the port.
    """
    port = facts.port
    if port is None or port.kept is None:
        return Loading()
    known = bool(port.builder)
    if port.own:
        return Loading("", known, own=True)
    stopped = port.unbuilt if not known else None
    if known and port.streamed:
        place = _renamed_at(facts, port) or _changed_at(facts, source, f"{port.kept.attribute}.")
        stopped = (place, quoted_line(source, place)) if place is not None else None
    return Loading(port.kept.attribute, known and stopped is None, stopped=stopped)


def quoted_line(source: UpstreamSource, place: str) -> str:
    """Return the reason, quoting the line at ``file:line``, why something is left to a person."""
    file, _, line = place.rpartition(":")
    lines = source.read(file).splitlines() if line.isdigit() and source.exists(file) else []
    text = lines[int(line) - 1].strip() if 0 < int(line or 0) <= len(lines) else ""
    return f"`{text}` is not followed" if text else ""


def _renamed_at(facts: Established, port: Port) -> str | None:
    """Return where the denoiser's weights are renamed or skipped before its own loader runs, or None.

    Rows of stacked parameters rename nothing in the port, whose layers are named like the parts.
    """
    assert port.kept is not None
    attribute, lines = port.kept.attribute, port.loader_lines
    if facts.value("detail.checkpoint.loader_location") is None or facts.value("answers.checkpoint.renames") is None:
        return facts.place("detail.checkpoint.loader_location")
    prefix = f"{attribute}."
    pipeline = facts.report.upstream.module.replace(".", "/") + ".py"
    own = {file for file, _, _ in lines} - {pipeline}
    for rule in facts.value("detail.checkpoint.rules") or []:
        place = str(rule["file"]), int(rule["line"] or 0)
        if place[0] in own or any(place[0] == file and first <= place[1] <= last for file, first, last in lines):
            continue
        if rule["op"] == "stacked" and not port.loader and _is_apart(port, str(rule["to"]), str(rule["from"])):
            continue
        start = str(rule["from"])
        if rule["op"] == "rename" and (rule["how"], start, rule["to"]) == ("prefix", prefix, ""):
            continue  # removes the prefix that the engine added
        if rule["how"] != "prefix" or not start or start.startswith(prefix) or prefix.startswith(start):
            return f"{place[0]}:{place[1]}"
    return None


def _is_apart(port: Port, stacked: str, part: str) -> bool:
    """Whether every layer of the port for a stacked parameter has the part as a separate layer."""
    where, _, name = stacked.strip(".").rpartition(".")
    at, _, own = part.strip(".").rpartition(".")
    layers = [fused for fused in port.fused if fused.name == name]
    return where == at and all(own in fused.parts for fused in layers)


def _changed_at(facts: Established, source: UpstreamSource, prefix: str) -> str | None:
    """Return where the pipeline's loader, or a function it calls, changes names or tensors; None if nowhere."""
    place = str(facts.value("detail.checkpoint.loader_location"))
    file, _, line = place.rpartition(":")
    if not source.exists(file):
        return place
    tree = source.tree(file)
    start = next(
        (n for n in walk_tree(tree) if isinstance(n, ast.FunctionDef) and n.name == LOADER and n.lineno == int(line)),
        None,
    )
    if start is None:
        return place
    graph = ModuleGraph(source)
    changes = ((where, at) for where, node in _reached(graph, file, start) if (at := _changed_in(node, prefix)))
    return next((f"{where.replace('.', '/')}.py:{at}" for where, at in changes), None)


def _reached(graph: ModuleGraph, file: str, start: ast.FunctionDef) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield a function and, transitively, the functions it calls by name, each with its module."""
    from scaffold.port.names import Defined, resolve

    module = file.removesuffix(".py").replace("/", ".")
    pending, seen = [(module, start)], set()
    while pending:
        where, node = pending.pop()
        yield where, node
        for call in (n for n in walk_tree(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)):
            assert isinstance(call.func, ast.Name)
            origin = resolve(graph, where, call.func.id)
            if isinstance(origin, Defined) and origin not in seen:
                seen.add(origin)
                info = graph.find(origin.module)
                found = info.definitions.get(origin.name) if info is not None else None
                if isinstance(found, ast.FunctionDef):
                    pending.append((origin.module, found))


def _changed_in(node: ast.FunctionDef, prefix: str) -> int:
    """Return the line on which a function changes names or tensors other than by the denoiser's prefix; 0 if none."""
    for inner in walk_tree(node):
        pair: ast.expr | None = None
        if isinstance(inner, ast.Yield):
            pair = inner.value
        elif isinstance(inner, ast.GeneratorExp | ast.ListComp):
            pair = inner.elt
        if isinstance(pair, ast.Tuple) and not all(
            isinstance(part, ast.Name) or _is_cut(part, prefix) for part in pair.elts
        ):
            return pair.lineno
        if isinstance(inner, ast.For) and isinstance(inner.target, ast.Tuple):
            names = {part.id for part in inner.target.elts if isinstance(part, ast.Name)}
            stacked = {id(target) for target in (*_stacked_names(inner), *_cut_names(inner, prefix))}
            for changed in walk_tree(inner):
                if isinstance(changed, ast.Name) and isinstance(changed.ctx, ast.Store) and changed.id in names:
                    if changed not in inner.target.elts and id(changed) not in stacked:
                        return changed.lineno
            weight = ast.unparse(inner.target.elts[-1])
            for call in walk_tree(inner):
                if isinstance(call, ast.Call) and _changes(call, weight):
                    return call.lineno
    return 0


def _is_cut(part: ast.expr, prefix: str) -> bool:
    """Whether an expression removes the engine's prefix from a name."""
    if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name):
        return ast.unparse(part.slice) in (f"len({prefix!r}):", f"{len(prefix)}:")
    func = part.func if isinstance(part, ast.Call) else None
    if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name):
        return False
    return ast.unparse(part) == f"{func.value.id}.removeprefix({prefix!r})"


def _cut_names(loop: ast.For, prefix: str) -> Iterator[ast.Name]:
    """Yield ``name`` of each ``name = name.removeprefix(…)`` inside a loop."""
    for node in walk_tree(loop):
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Name) and _is_cut(node.value, prefix):
            if any(isinstance(read, ast.Name) and read.id == target.id for read in walk_tree(node.value)):
                yield target


def _changes(call: ast.Call, weight: str) -> bool:
    """Whether a call that stores a weight gets an expression computed from it instead of the weight itself."""
    if ast.unparse(call.func).rpartition(".")[2] not in _PLACING:
        return False
    return any(
        not isinstance(given, ast.Name) and any(isinstance(n, ast.Name) and n.id == weight for n in walk_tree(given))
        for given in call.args
    )


def _stacked_names(loop: ast.For) -> Iterator[ast.Name]:
    """Yield ``name`` of each ``for whole, part, shard in rows: name = name.replace(part, whole)`` inside a loop.

    This renaming follows the table's rows, which the checkpoint's rules already contain.
    """
    for rows in walk_tree(loop):
        if not isinstance(rows, ast.For) or not isinstance(rows.target, ast.Tuple) or len(rows.target.elts) != 3:
            continue
        whole, part, _ = (ast.unparse(element) for element in rows.target.elts)
        for node in rows.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if ast.unparse(node.value) == f"{name}.replace({part}, {whole})":
                    yield node.targets[0]
