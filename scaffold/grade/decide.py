"""Decides between a package composed from the shared templates and one with a ported denoiser."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scaffold.errors import RefusedError, ScaffoldError
from scaffold.grade import COMPLETE, UNPROVEN
from scaffold.grade.diffusers_spec import held_denoiser, is_loaded
from scaffold.grade.ported_spec import build_ported_spec
from scaffold.grade.proof import is_proven, not_run
from scaffold.source.modules import ModuleGraph
from scaffold.source.syntax import walk_tree
from scaffold.spec import build_spec
from scaffold.spec.derived import digests
from scaffold.spec.preset import EMPTY, PresetError

if TYPE_CHECKING:
    from scaffold.inspect.report import Report
    from scaffold.port import Port
    from scaffold.port.names import Defined
    from scaffold.source.modules import ModuleGraph
    from scaffold.spec import IntegrationSpec, SpecRequest
    from scaffold.upstream import UpstreamSource


@dataclass(frozen=True)
class Graded:
    """A spec, and the port its rendering needs; None for a composed package."""

    spec: IntegrationSpec
    port: Port | None = None


def specify(request: SpecRequest, source: UpstreamSource, ported: Graded | None = None) -> Graded:
    """Return the spec composed from the templates if possible, else the one with a ported denoiser.

    Args:
        request: report, names, contract profile and what else is known.
        source: the version of vllm-omni.
        ported: an earlier result for the same pipeline and source; its port is reused.

    Raises:
        ScaffoldError: the given checkpoint is not the one a preset describes, or cannot be read; a team preset is
            invalid.
    """
    if is_loaded(request.report):
        return Graded(build_ported_spec(request, None, None, "", source, held_denoiser(request, source)))
    try:
        return compose(request, source)
    except PresetError:
        raise
    except RefusedError as error:
        if request.report.task is not None and request.preset.manifest is not None:
            pipeline = request.report.upstream.pipeline
            raise RefusedError(f"--task {request.report.task}: {pipeline} is composed, and {error.message}") from None
        reason = error.message
    except ScaffoldError as error:
        preset = request.preset
        if preset is not EMPTY and (request.headers is not None or preset.manifest is not None):
            raise  # the model is known, so the checkpoint is at fault, not the templates
        reason = error.message
    return specify_ported(request, source, reason, ported)


def compose(request: SpecRequest, source: UpstreamSource) -> Graded:
    """Return the spec of a package rendered from the shared templates alone; complete if tests have run it.

    Raises:
        ScaffoldError: neither checkpoint nor preset gives headers, or the checkpoint lacks what the pipeline loads.
        RefusedError: a value every template needs is unknown, or no block supports the task.
    """
    spec = build_spec(request)
    proven = is_proven(request, source)
    grade = {"value": COMPLETE} if proven else {"value": UNPROVEN, "reason": not_run(request)}
    provenance = {**spec.provenance, **{f"grade.{key}": "omni-scaffold" for key in grade}}
    derived = {**spec.derived, **digests({"grade": grade})}
    return Graded(replace(spec, sections={**spec.sections, "grade": grade}, provenance=provenance, derived=derived))


def specify_ported(request: SpecRequest, source: UpstreamSource, reason: str, ported: Graded | None = None) -> Graded:
    """Return the partial spec, with the denoiser ported if its class is known."""
    port: Port | None
    denoiser: tuple[str, str] | None
    if ported is not None and ported.port is not None:
        port, spec = ported.port, ported.spec
        denoiser = str(spec.value("port.module")), str(spec.value("port.class"))
    else:
        port, denoiser = port_of(source, request.report, request.preset.value("deploy", "additional_config"))
    return Graded(build_ported_spec(request, port, denoiser, reason, source), port)


def port_of(
    source: UpstreamSource, report: Report, settings: Mapping[str, Any] | None = None
) -> tuple[Port | None, tuple[str, str] | None]:
    """Return the ported denoiser of a pipeline, and the module and class it is ported from.

    Args:
        source: the version of vllm-omni.
        report: of the pipeline.
        settings: the engine settings that the package fixes; None if it fixes none.
    """
    from scaffold.port import port_denoiser
    from scaffold.port.denoiser_class import find_denoiser_class, holding_attribute

    graph = ModuleGraph(source)
    constants = report.value("detail.model.constants")
    if isinstance(constants, Mapping):
        return _own_port(source, graph, report, constants)
    found = find_denoiser_class(graph, report)
    if found is None:
        return None, None
    rows, methods = stacked_rows(report), extra_methods(graph, report, found)
    kept = holding_attribute(graph, report, found)
    method = _predicting(report, found)
    port = port_denoiser(
        source,
        found.module,
        found.name,
        stacked=rows,
        extra_methods=methods,
        kept=kept,
        method=method,
        settings=settings,
    )
    return port, (found.module, found.name)


def _own_port(
    source: UpstreamSource, graph: ModuleGraph, report: Report, constants: Mapping[str, object]
) -> tuple[Port | None, tuple[str, str] | None]:
    """Return the port of a pipeline that is its own denoiser."""
    from scaffold.port import Kept, port_denoiser
    from scaffold.port.denoiser_class import pipeline_class

    pipeline = pipeline_class(graph, report)
    method = str(report.value("denoiser.method"))
    if pipeline is None or not method.isidentifier():
        return None, None
    kept = Kept(pipeline.module, pipeline.name, "")
    rows = stacked_rows(report)
    port = port_denoiser(
        source, *pipeline, stacked=rows, extra_methods=[method], kept=kept, method=method, constants=constants
    )
    return port, (pipeline.module, pipeline.name)


def _predicting(report: Report, denoiser: Defined) -> str:
    """Return the denoiser's method that the loop calls; ``forward`` unless the report names another."""
    method = report.value("denoiser.method")
    known = report.value("denoiser.class") == denoiser.name and isinstance(method, str) and method.isidentifier()
    return str(method) if known else "forward"


def stacked_rows(report: Report) -> list[tuple[str, str, str | int]]:
    """Return the pipeline's stacked parameters as rows."""
    return [(str(row[0]), str(row[1]), row[2]) for row in report.value("checkpoint.stacked") or []]


def extra_methods(graph: ModuleGraph, report: Report, denoiser: Defined) -> tuple[str, ...]:
    """Return methods of the denoiser's classes, other than ``forward``, that the pipeline calls."""
    from scaffold.port.denoiser_class import loop_methods
    from scaffold.port.names import Defined, Scope

    info = graph.find(report.upstream.module)
    found: list[str] = []
    method = report.value("denoiser.method")
    if isinstance(method, str) and method.isidentifier():
        found.append(method)
    around = report.value("denoiser.class") is None and denoiser.module != report.upstream.module
    if around:
        found += loop_methods(graph, report)
    if info is not None:
        scope = Scope(graph, info)
        for node in walk_tree(graph.source.tree(info.file)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                origin = scope.origin(node.value.id)
                if isinstance(origin, Defined) and origin.module == denoiser.module:
                    found.append(node.attr)
    return tuple(dict.fromkeys(found))
