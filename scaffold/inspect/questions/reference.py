"""The use of a request's images; only answered for edits."""

from __future__ import annotations

from scaffold.inspect.facts import UNKNOWN, Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import Search
from scaffold.inspect.program.turns import is_sample, is_turn
from scaffold.inspect.program.values import Param
from scaffold.inspect.questions.denoiser import find_denoiser, given_beside
from scaffold.inspect.report import CONDITIONS
from scaffold.source.values import Value

ORDER = 4
KEYS = ()


def answers(program: Program) -> dict[str, Fact]:
    """``conditions``: arguments of the denoiser that the images reach."""
    return {CONDITIONS: _conditions(program)} if program.with_references else {}


def _conditions(program: Program) -> Fact:
    """Arguments of the denoiser's calls in the loop; of sample and time the size alone may come from an image."""
    denoiser, loop = find_denoiser(program), program.denoising
    if denoiser is None or loop is None:
        return UNKNOWN
    places: dict[str, Evidence | None] = {}

    def brought(value: Value) -> bool:
        if not isinstance(value, Param):
            return False
        return value.root == "media" or (value.root == "prompt" and program.execution.items.is_given(value.key))

    search = Search(brought, [id(loop.sample)] if loop.sample is not None else [])
    for record in program.trace.calls:
        if loop.number not in record.loops or record.method != denoiser.record.method:
            continue
        if record.receiver is not denoiser.record.receiver:
            continue
        for name, value in (record.named).items():
            of_size = is_turn(value, loop.number) or (loop.sample is not None and is_sample(value, loop.sample))
            if not of_size and search(value):
                places.setdefault(name, record.at)
    if not places and (beside := given_beside(program)) is not None:
        return fact(None, [beside], "unknown")
    return fact(list(places), list(places.values()) or [program.place(program.cls)], "likely")
