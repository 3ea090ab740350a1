"""Where the function stands that updates the sample, and how the rollout adapter puts its own in its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from scaffold.grade.established import Established
from scaffold.source.syntax import walk_tree

if TYPE_CHECKING:
    from scaffold.port.names import Defined
    from scaffold.source.modules import ModuleGraph
    from scaffold.upstream import UpstreamSource

PIPELINE, MODULE, FUNCTION = "pipeline", "module", "function"
_DEPTH = 6
# The rollout adapter has these methods itself, and each calls the pipeline's.
_ADAPTER = frozenset({"__init__", "forward", "load_weights", "map_lora_update_to_engine"})


def replaced_update(facts: Established, source: UpstreamSource) -> dict[str, Any] | None:
    """Return the function with a step of ours in place of the update, and how the pipeline comes to it.

    ``holder`` is ``pipeline``: a method of the pipeline or of a class that it inherits from; the adapter overrides it.
    ``module``: a method of another class, ``class`` of ``module``; the adapter binds it on the instance that the
    pipeline holds. ``function``: the pipeline calls it by the global name ``function`` of ``module``, where the
    adapter puts its own while a request runs. None where none of these is established.
    """
    from scaffold.errors import ScaffoldError
    from scaffold.port.region import port_region
    from scaffold.source.modules import ModuleGraph

    parts, text = facts.value("detail.region.parts"), facts.value("detail.region.method")
    if parts is None or text is None:
        return None
    graph = ModuleGraph(source)
    place = facts.report.fact("detail.region.method").evidence[0]
    module = place.file.removesuffix(".py").replace("/", ".")
    holder = _holder(graph, facts, module, parts["class"], parts["function"])
    if holder is None:
        return None
    try:
        loop = port_region(graph, module, text, parts["class"], parts)
    except ScaffoldError:
        return None
    line = facts.report.fact("detail.region.parts").evidence[0].line
    return {
        "method": parts["function"],
        "text": loop.text,
        "names": [],
        "location": f"{place.file}:{place.line}",
        "replaced": [line, line + parts["last"] - parts["first"]],
        "last_line": place.line + len(text.splitlines()) - 1,
        "imports": list(loop.imports),
        "typing_imports": list(loop.typing_imports),
        **holder,
    }


def is_own_loop(facts: Established, source: UpstreamSource) -> bool:
    """Whether the denoising loop stands in the pipeline's class, or in one that it inherits from."""
    from scaffold.port.names import Defined, resolve
    from scaffold.source.modules import ModuleGraph

    file, _, line = str(facts.value("detail.scheduler.loop_location") or "").rpartition(":")
    graph = ModuleGraph(source)
    pipeline = resolve(graph, facts.report.upstream.module, str(facts.value("detail.pipeline.class")))
    if not file or not source.exists(file) or not isinstance(pipeline, Defined):
        return False
    module = file.removesuffix(".py").replace("/", ".")
    around = {
        Defined(module, node.name)
        for node in source.tree(file).body
        if isinstance(node, ast.ClassDef) and node.lineno <= int(line) <= (node.end_lineno or 0)
    }
    return bool(around & set(_family(graph, pipeline)))


def _holder(
    graph: ModuleGraph, facts: Established, module: str, owner: str | None, function: str
) -> dict[str, Any] | None:
    from scaffold.port.names import Defined, resolve

    pipeline = resolve(graph, facts.report.upstream.module, str(facts.value("detail.pipeline.class")))
    if not isinstance(pipeline, Defined):
        return None
    family = list(_family(graph, pipeline))
    if owner is None:
        modules = list(dict.fromkeys(name for name, _ in family))
        called = [name for name in modules if _calls(graph, name, Defined(module, function))]
        return {"holder": FUNCTION, "module": called[0], "function": function} if len(called) == 1 else None
    if Defined(module, owner) in family:
        if function in _ADAPTER:
            return None
        overridden = next(entry for entry in family if _has_method(graph, entry, function))
        return {"holder": PIPELINE} if overridden == Defined(module, owner) else None
    return {"holder": MODULE, "module": module, "class": owner} if _is_module(graph, Defined(module, owner)) else None


def _family(graph: ModuleGraph, origin: Defined, depth: int = 0) -> Iterator[Defined]:
    """Yield a class and the classes of the source that it inherits from."""
    from scaffold.port.names import Defined, resolve

    yield origin
    info = graph.find(origin.module)
    node = info.definitions.get(origin.name) if info is not None else None
    for base in node.bases if isinstance(node, ast.ClassDef) and depth < _DEPTH else ():
        parent = resolve(graph, origin.module, base.id) if isinstance(base, ast.Name) else None
        if isinstance(parent, Defined):
            yield from _family(graph, parent, depth + 1)


def _has_method(graph: ModuleGraph, origin: Defined, name: str) -> bool:
    info = graph.find(origin.module)
    node = info.definitions.get(origin.name) if info is not None else None
    return isinstance(node, ast.ClassDef) and any(
        isinstance(part, ast.FunctionDef) and part.name == name for part in node.body
    )


def _is_module(graph: ModuleGraph, origin: Defined) -> bool:
    """Whether instances of a class are modules of torch, which the pipeline's ``modules()`` yields."""
    for entry in _family(graph, origin):
        info = graph.find(entry.module)
        node = info.definitions.get(entry.name) if info is not None else None
        bases = node.bases if isinstance(node, ast.ClassDef) else []
        if any(ast.unparse(base).rpartition(".")[2] in ("Module", "PreTrainedModel") for base in bases):
            return True
    return False


def _calls(graph: ModuleGraph, module: str, function: Defined) -> bool:
    """Whether a module calls a function by its own name, bound once at the top of the module."""
    from scaffold.port.names import resolve

    info = graph.find(module)
    if info is None or resolve(graph, module, function.name) != function:
        return False
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function.name
        for node in walk_tree(graph.source.tree(info.file))
    )
