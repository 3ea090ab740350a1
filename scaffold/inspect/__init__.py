"""Answers questions about a vllm-omni pipeline from its source alone, each answer with its place."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.inspect.facts import UNKNOWN, Confidence, Evidence, Fact
from scaffold.inspect.report import EDIT, FILES, PREFIX, STREAMED, Report
from scaffold.limits import own_process
from scaffold.limits.collector import collector_off
from scaffold.upstream.own_pipeline import with_own_pipeline

# What a file beside the checkpoint may say in place of the source.
OF_FILES = (
    "answers.scheduler.shift",
    "answers.scheduler.direction",
    "answers.cfg.scales",
    "detail.scheduler.default_steps",
    "detail.request.sizes",
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaffold.checkpoint import CheckpointHeaders
    from scaffold.inspect.program import Program
    from scaffold.upstream import PipelineTarget, UpstreamSource

__all__ = ["EDIT", "UNKNOWN", "Confidence", "Evidence", "Fact", "Report", "inspect_pipeline"]


def inspect_pipeline(
    source: UpstreamSource, pipeline: str, headers: CheckpointHeaders | None = None, task: str | None = None
) -> Report:
    """Answer every question about one pipeline.

    Args:
        source: the version of vllm-omni to read; nothing of it is imported.
        pipeline: a registry key, a model folder (its first registered pipeline) or ``module:Class``.
        headers: the checkpoint's headers, where there is one.
        task: ``edit`` for a request that brings images; None for one of words alone.

    Raises:
        ScaffoldError: no such pipeline, or its module cannot be read.
    """
    source, pipeline = with_own_pipeline(source, pipeline)
    if source.digest and own_process.MAY_CACHE:
        from scaffold.inspect.report_cache import SECONDS, CachedReport

        entry = CachedReport(source, pipeline, task)
        report = entry.read()
        if report is None:
            begin = time.process_time()
            report = _inspect(source, pipeline, task)
            if time.process_time() - begin < SECONDS:
                entry.write(report)
    else:
        report = _inspect(source, pipeline, task)
    if headers is None:
        return report
    if any(report.fact(key).confidence == "likely" for key in OF_FILES):
        report = _inspect(source, pipeline, task, headers)
    return _with_checkpoint(report, headers)


def _with_checkpoint(report: Report, headers: CheckpointHeaders) -> Report:
    """The report with the checkpoint's files in place of the pattern that the loader streams, and what its
    configurations say of scheduler and autoencoder where the source does not.
    """
    from scaffold.inspect.component_configs import configured

    stated, facts = report.fact(FILES), dict(report.facts)
    if STREAMED in (stated.value or ()):
        others = [name for name in stated.value if name != STREAMED]
        facts[FILES] = replace(stated, value=list(dict.fromkeys([*others, *(file.name for file in headers.files)])))
    return replace(report, facts={**facts, **configured(facts, headers)}, headers=headers)


# The symbolic values of one inspection form one graph that is dropped as a whole.
@collector_off()
def _inspect(
    source: UpstreamSource, pipeline: str, task: str | None, headers: CheckpointHeaders | None = None
) -> Report:
    from scaffold.inspect.engine import answer_all
    from scaffold.upstream import resolve_pipeline

    target = resolve_pipeline(source, pipeline)
    first: Program | None = None
    best: Program | None = None
    reads: dict[tuple[str, str], Evidence | None] = {}
    key = pipeline if pipeline in target.registry_keys else next(iter(target.registry_keys), None)
    if task == EDIT:
        report = answer_all(_with_references(source, target, key, headers))
        if report.fact(PREFIX).confidence == "unknown":
            return report
        # The images stand in front of a sequence that is the same without them, and easier to follow.
        plain = _inspect(source, pipeline, None, headers)
        details = {k: f for k, f in plain.facts.items() if k.startswith("detail.")}
        return replace(report, facts={k: details.get(k, f) if f == UNKNOWN else f for k, f in report.facts.items()})
    for program in _executions(source, target, key, headers):
        if program.alone:
            if best is not None:
                break
            # What the request is read for was seen where it was executed, not in the loop by itself.
            program.trace.reads.update(reads)
        reads = program.trace.reads
        first = first or program
        if program.denoising is not None:
            # A request that a function on the way always refuses is not what leads to the loop.
            if not program.execution.broken:
                return answer_all(program)
            best = best or program
    assert first is not None
    return answer_all(best or first)


def _with_references(
    source: UpstreamSource, target: PipelineTarget, key: str | None, headers: CheckpointHeaders | None
) -> Program:
    """The pipeline executed on a request that brings images, with what the engine makes of them before."""
    from scaffold.inspect.pre_process import pre_process
    from scaffold.inspect.program import Program

    program = Program(source, target, with_references=True, key=key, headers=headers)
    program.give(name for root, name in pre_process(program).put if root == "prompt")
    program.run()
    return program


def _executions(
    source: UpstreamSource, target: PipelineTarget, key: str | None, headers: CheckpointHeaders | None
) -> Iterator[Program]:
    """The pipeline executed on a request that gives more and more, then its loops by themselves."""
    from scaffold.inspect.hidden_loops import hidden_loops
    from scaffold.inspect.program import Program
    from scaffold.inspect.program.program import EXECUTIONS
    from scaffold.inspect.refusals.placeholder import refusal as is_placeholder
    from scaffold.limits.cpu_limit import CpuLimit

    cpu_limit = CpuLimit(EXECUTIONS, EXECUTIONS)
    # A class for image or video input refuses a request without one, a policy one without an observation.
    for media, everything in ((False, False), (True, False), (True, True)):
        program = Program(source, target, with_media=media, with_everything=everything, key=key, headers=headers)
        program.cpu_limit = cpu_limit
        program.run()
        yield program
    if is_placeholder(program):
        return
    for loop in hidden_loops(source, target):
        program = Program(source, target, with_everything=True, key=key, headers=headers)
        program.cpu_limit = cpu_limit
        program.run_alone(loop.function, loop.owner, loop.at.file)
        yield program
