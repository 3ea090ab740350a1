"""Executes a pipeline until its loop is reached, and puts every question to it; what none answers is unknown."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from scaffold.inspect import questions as asked
from scaffold.inspect.facts import UNKNOWN, Evidence, Fact
from scaffold.inspect.hidden_loops import hidden_loops
from scaffold.inspect.pre_process import pre_process
from scaffold.inspect.program import Program
from scaffold.inspect.program.program import EXECUTIONS
from scaffold.inspect.refusals import is_placeholder
from scaffold.inspect.report import ANSWERS, EDIT, PREFIX, Report, Upstream
from scaffold.limits.cpu_limit import CpuLimit, collector_off
from scaffold.source.builtin_calls import WRONG
from scaffold.upstream import resolve_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaffold.checkpoint import CheckpointHeaders
    from scaffold.upstream import PipelineTarget, UpstreamSource

# Seconds of processor time: for all questions, and for one. Real sources take a hundredth of it.
ALL, EACH = 3.0, 1.0


# The symbolic values of one inspection form one graph that is dropped as a whole.
@collector_off()
def inspect_source(
    source: UpstreamSource, pipeline: str, task: str | None, headers: CheckpointHeaders | None = None
) -> Report:
    """Execute a pipeline until its loop is reached, and put every question to that execution."""
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
        plain = inspect_source(source, pipeline, None, headers)
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
    program = Program(source, target, with_references=True, key=key, headers=headers)
    program.give(name for root, name in pre_process(program).put if root == "prompt")
    program.run()
    return program


def _executions(
    source: UpstreamSource, target: PipelineTarget, key: str | None, headers: CheckpointHeaders | None
) -> Iterator[Program]:
    """The pipeline executed on a request that gives more and more, then its loops by themselves."""
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


@cache
def questions() -> tuple[ModuleType, ...]:
    """All question modules, in the order of their ``ORDER`` and name."""
    names = [f"{asked.__name__}.{module.name}" for module in pkgutil.iter_modules(asked.__path__)]
    found = [importlib.import_module(name) for name in names]
    return tuple(sorted(found, key=lambda m: (getattr(m, "ORDER", 50), m.__name__)))


def answer_all(program: Program) -> Report:
    """Put every question to ``program``; a question that fails leaves its facts unknown, and the report says so."""
    facts: dict[str, Fact] = {}
    failures: dict[str, str] = {}
    cpu_limit = CpuLimit(ALL, EACH)
    for question in questions():
        for key in question.KEYS:
            facts[key] = UNKNOWN
        try:
            with cpu_limit.work():
                facts.update(question.answers(program))
        except (*WRONG, RuntimeError, StopIteration) as error:
            # The source is untrusted: anything unexpected in it makes the answer unknown, never wrong.
            failures[question.__name__.rpartition(".")[2]] = f"{type(error).__name__}: {error}"
    if program.alone:
        # Executed without a request that leads to it, so no answer is more than likely.
        facts = {k: _likely(f) if k.startswith(ANSWERS) else f for k, f in facts.items()}
    target = program.target
    upstream = Upstream(
        program.source.version, program.source.label, program.cls.name, target.module, target.registry_keys
    )
    task = EDIT if program.with_references else None
    return Report(upstream, facts, failures=failures, task=task)


def _likely(fact: Fact) -> Fact:
    return Fact(fact.value, fact.evidence, "likely") if fact.confidence == "certain" else fact
