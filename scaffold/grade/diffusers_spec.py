"""The spec of a package whose denoiser diffusers loads: no port, no key map, no formula."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.errors import RefusedError
from scaffold.grade.established import Established
from scaffold.grade.recording import Recording, find_recording
from scaffold.source.modules import ModuleGraph

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.spec import SpecRequest
    from scaffold.upstream import UpstreamSource

FORM = "diffusers"
# How diffusers names the projections of attention, which most of its models have.
PROJECTIONS = ("to_q", "to_k", "to_v", "to_out.0")
FOLDER = "transformer"


def is_loaded(report: Report) -> bool:
    """Whether diffusers loads the pipeline's denoiser."""
    return bool(report.verdict["path"] == FORM)


def recording_of(facts: Established, source: UpstreamSource) -> Recording:
    """Return how the steps are replaced; calls of the engine's denoiser can be repeated by diffusers' class."""
    found = find_recording(facts, source)
    return replace(found, calls=facts.value("answers.denoiser.method") is not None)


def held_denoiser(request: SpecRequest, source: UpstreamSource) -> tuple[str, str, str]:
    """Return module and class of the engine's denoiser, and the attribute of the pipeline that holds it.

    Raises:
        RefusedError: nothing to record: the loop, or the class whose calls it makes, was not found.
    """
    from scaffold.port.denoiser_class import find_denoiser_class, holding_attribute

    report, facts = request.report, Established(request.report, None)
    pipeline = f"{report.upstream.pipeline} of vllm-omni {report.upstream.label}"
    recording = recording_of(facts, source)
    place = facts.place("detail.scheduler.step_location", "detail.scheduler.loop_location")
    if recording.kind is None:
        why = recording.why or "no step was found that can be replaced"
        raise RefusedError(f"{pipeline} is not supported here: {report.verdict['reason']}; {why} ({place})")
    if not recording.calls:
        raise RefusedError(f"{pipeline} is not supported here: what its loop calls was not established ({place})")
    graph = ModuleGraph(source)
    found = find_denoiser_class(graph, report)
    if found is None:
        raise RefusedError(f"{pipeline} is not supported here: the class of its denoiser was not found ({place})")
    kept = holding_attribute(graph, report, found)
    attribute = kept.attribute if kept is not None else FOLDER
    if attribute != FOLDER:
        why = f"it keeps its denoiser as {attribute}, and VeRL-Omni loads and sends that of the folder {FOLDER}"
        raise RefusedError(f"{pipeline} is not supported here: {why} ({place})")
    return found.module, found.name, attribute
