"""Sizes of the result and the count of steps, where the request gives none."""

from __future__ import annotations

from scaffold.inspect.facts import Confidence, Evidence, Fact, fact
from scaffold.inspect.loop_schedule import loop_schedule, rests_on_a_file
from scaffold.inspect.program import Program
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.schedule import STEPS_KEY
from scaffold.inspect.program.values import Param
from scaffold.inspect.questions.request_settings import parameters

ORDER = 15
_COUNTS = {"answers.scheduler.steps", "detail.scheduler.default_steps"}
KEYS = ("detail.request.sizes",)
SIZES = ("height", "width", "num_frames", STEPS_KEY)


def answers(program: Program) -> dict[str, Fact]:
    """``{name: default}`` of the settings in ``SIZES`` that the pipeline reads; None where the default is unknown.

    A number that the request's class declares for all pipelines alike stands for a setting that nobody gave.
    """
    found: dict[str, set[int | None]] = {}
    places: dict[str, Evidence | None] = {}
    sure: Confidence = "certain"
    for given in parameters(program):
        if given.root != "sampling_params" or given.key not in SIZES:
            continue
        known = default_of(given.default) if given.default is not None else None
        if known is not None and _is_declared(program, given):
            found.setdefault(given.key, set()).add(None)
        elif known is None:
            found.setdefault(given.key, set())  # filled in behind this place
        else:
            found.setdefault(given.key, set()).add(known if type(known) is int and known is not MISSING else None)
        places.setdefault(given.key, given.at)
        sure = "likely" if rests_on_a_file(given) else sure
    sizes = {name: next(iter(values)) if len(values) == 1 else None for name, values in sorted(found.items())}
    if program.denoising is not None and STEPS_KEY in sizes and not _COUNTS & set(loop_schedule(program)):
        sizes[STEPS_KEY] = None  # asked for, but not what the loop is walked by
    return {KEYS[0]: fact(sizes, places.values(), sure)} if sizes else {}


def _is_declared(program: Program, given: Param) -> bool:
    """Whether a setting's default is the one that stands in the class of the sampling parameters."""
    declared = (
        program.execution.sampling_class.find_assign(given.key)
        if program.execution.sampling_class is not None
        else None
    )
    place = given.default.at if given.default is not None else None
    return declared is not None and place == Evidence(declared[0].module.file, declared[1].lineno)
