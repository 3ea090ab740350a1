"""Finds the function that updates the sample, and how the rollout adapter replaces it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.grade.established import Established
from scaffold.port.slicing import methods_named
from scaffold.source.modules import ModuleGraph
from scaffold.source.syntax import walk_tree

if TYPE_CHECKING:
    from scaffold.port.names import Defined
    from scaffold.source.modules import ModuleGraph
    from scaffold.upstream import UpstreamSource

PIPELINE, MODULE, FUNCTION = "pipeline", "module", "function"
# Methods the rollout adapter defines itself; each calls the pipeline's.
_ADAPTER = frozenset({"__init__", "load_weights", "map_lora_update_to_engine"})


def replaced_update(facts: Established, source: UpstreamSource) -> dict[str, Any] | str:
    """Return the function with the update replaced by our step, and how the adapter installs it, or why it cannot.

    ``holder`` is ``pipeline``: a method of the pipeline or of a class that it inherits from; the adapter overrides it,
    or calls it in place of the pipeline's ``forward``. ``module``: a method of another class, ``class`` of ``module``;
    the adapter binds it on the pipeline's instance. ``function``: the pipeline calls the global name ``function`` of
    ``module``, which the adapter replaces while a request runs.
    """
    from scaffold.port.region import port_region

    parts, text = facts.value("detail.region.parts"), facts.value("detail.region.method")
    if parts is None or text is None:
        return "no run of plain statements makes the next sample of one prediction and does nothing else"
    graph = ModuleGraph(source)
    place = facts.report.fact("detail.region.method").evidence[0]
    module = place.file.removesuffix(".py").replace("/", ".")
    holder = _holder(graph, facts, module, parts["class"], parts["function"])
    if holder is None:
        return f"`{parts['function']}` is no function that the adapter can stand in for"
    try:
        loop = port_region(graph, module, text, parts["class"], parts)
    except ScaffoldError as error:
        return error.message
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
    """Whether the denoising loop is in the pipeline's class or in one that it inherits from."""
    from scaffold.port.building import owners_of
    from scaffold.port.denoiser_class import pipeline_class

    file, _, line = str(facts.value("detail.scheduler.loop_location") or "").rpartition(":")
    graph = ModuleGraph(source)
    pipeline = pipeline_class(graph, facts.report)
    owners = owners_of(graph, pipeline) if pipeline is not None else ()
    return any(o.info.file == file and o.node.lineno <= int(line) <= (o.node.end_lineno or 0) for o in owners)


def _holder(
    graph: ModuleGraph, facts: Established, module: str, owner: str | None, function: str
) -> dict[str, Any] | None:
    from scaffold.port.building import owners_of
    from scaffold.port.denoiser_class import pipeline_class
    from scaffold.port.names import Defined

    pipeline = pipeline_class(graph, facts.report)
    if pipeline is None:
        return None
    family = list(owners_of(graph, pipeline))
    if owner is None:
        modules = dict.fromkeys(entry.info.name for entry in family)
        called = [name for name in modules if _calls(graph, name, Defined(module, function))]
        return {"holder": FUNCTION, "module": called[0], "function": function} if len(called) == 1 else None
    own = Defined(module, owner)
    if any((entry.info.name, entry.node.name) == own for entry in family):
        if function in _ADAPTER:
            return None
        overridden, _ = next(methods_named(family, function))
        return {"holder": PIPELINE} if (overridden.info.name, overridden.node.name) == own else None
    # The pipeline's ``modules()`` yields only torch modules.
    bases = (ast.unparse(base).rpartition(".")[2] for entry in owners_of(graph, own) for base in entry.node.bases)
    is_module = any(base in ("Module", "PreTrainedModel") for base in bases)
    return {"holder": MODULE, "module": module, "class": owner} if is_module else None


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
