"""Puts every question to a program; a key that a question leaves out is unknown."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from scaffold.inspect import questions as asked
from scaffold.inspect.facts import UNKNOWN, Fact
from scaffold.inspect.program import Program
from scaffold.inspect.report import ANSWERS, EDIT, Report, Upstream
from scaffold.limits.cpu_limit import CpuLimit
from scaffold.source.builtin_calls import WRONG

# Seconds of processor time: for all questions, and for one. Real sources take a hundredth of it.
ALL, EACH = 3.0, 1.0


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
            # The source read is anybody's: what was not foreseen in it is unknown, never a wrong answer.
            failures[question.__name__.rpartition(".")[2]] = f"{type(error).__name__}: {error}"
    if program.alone:
        # Executed without the request that leads to it: nothing is more than likely.
        facts = {k: _likely(f) if k.startswith(ANSWERS) else f for k, f in facts.items()}
    target = program.target
    upstream = Upstream(
        program.source.version, program.source.label, program.cls.name, target.module, target.registry_keys
    )
    task = EDIT if program.with_references else None
    return Report(upstream, facts, failures=failures, task=task)


def _likely(fact: Fact) -> Fact:
    return Fact(fact.value, fact.evidence, "likely") if fact.confidence == "certain" else fact
