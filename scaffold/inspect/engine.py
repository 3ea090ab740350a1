"""Finds the questions and puts them to a program.

A question is a module of this package with ``KEYS``, the facts it answers for in the order of the report, and
``answers(program)``. A key that ``answers`` leaves out is unknown.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

import scaffold.inspect
from scaffold.inspect.facts import UNKNOWN, Fact
from scaffold.inspect.program import Program
from scaffold.inspect.report import ANSWERS, Report, Upstream
from scaffold.patience import Patience

# Seconds of processor time: for all questions, and for one. Real sources take a hundredth of it.
ALL, EACH = 3.0, 1.0


@cache
def questions() -> tuple[ModuleType, ...]:
    """All question modules, in the order of their ``ORDER`` and name."""
    found: list[ModuleType] = []
    for module in pkgutil.iter_modules(scaffold.inspect.__path__):
        if module.ispkg or module.name in ("engine", "facts", "report", "text"):
            continue
        loaded = importlib.import_module(f"{scaffold.inspect.__name__}.{module.name}")
        if hasattr(loaded, "answers"):
            found.append(loaded)
    return tuple(sorted(found, key=lambda m: (getattr(m, "ORDER", 50), m.__name__)))


def answer_all(program: Program) -> Report:
    """Put every question to ``program``; a question that fails leaves its facts unknown, and the report says so."""
    facts: dict[str, Fact] = {}
    failures: dict[str, str] = {}
    patience = Patience(ALL, EACH)
    for question in questions():
        for key in question.KEYS:
            facts[key] = UNKNOWN
        try:
            with patience.work():
                facts.update(question.answers(program))
        except (RecursionError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            # The source read is anybody's: what was not foreseen in it is unknown, never a wrong answer.
            failures[question.__name__.rpartition(".")[2]] = f"{type(error).__name__}: {error}"
    if program.alone:
        # Executed without the request that leads to it: nothing is more than likely.
        facts = {k: _likely(f) if k.startswith(ANSWERS) else f for k, f in facts.items()}
    target = program.target
    upstream = Upstream(
        program.source.version, program.source.label, program.cls.name, target.module, target.registry_keys
    )
    return Report(upstream, facts, program.headers, failures)


def _likely(fact: Fact) -> Fact:
    return Fact(fact.value, fact.evidence, "likely") if fact.confidence == "certain" else fact
