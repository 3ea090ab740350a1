"""Settings of a request that change what is generated, and what they are when nobody gives them."""

from __future__ import annotations

from scaffold.inspect.facts import Confidence, Evidence, Fact, fact
from scaffold.inspect.guidance import plain_parts
from scaffold.inspect.program import Program, once
from scaffold.inspect.program.algebra import options, reach_last, walk
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.schedule import STEPS_KEY
from scaffold.inspect.program.values import Conf, Const, Param
from scaffold.inspect.questions.schedule import loop_schedule, rests_on_a_file

ORDER = 15
KEYS = (
    "detail.request.settings",
    "detail.request.default_seed",
    "detail.request.sizes",
)


def answers(program: Program) -> dict[str, Fact]:
    """Return the facts of ``KEYS``."""
    return {**_request_settings(program), **_request_sizes(program)}


def _request_settings(program: Program) -> dict[str, Fact]:
    """``settings``: extra arguments with one plain default, by name; ``default_seed``: the constant used without one.

    An argument whose default a file beside the weights decides has none, nor has one that is read with several.
    """
    facts: dict[str, Fact] = {}
    found: dict[str, tuple[object, Evidence | None]] = {}
    unsettled: set[str] = set()
    for node in parameters(program):
        if node.root == "extra_args" and "." not in node.key and node.default is not None:
            known = default_of(node.default)
            if known is MISSING:
                unsettled.add(node.key)
            if not isinstance(known, (bool, int, float, str)):
                continue
            first = found.setdefault(node.key, (known, node.at))[0]
            if first != known or any(isinstance(part, Conf) for part in plain_parts(node.default)):
                unsettled.add(node.key)
    if found:
        values = {name: value for name, (value, _) in sorted(found.items()) if name not in unsettled}
        facts["detail.request.settings"] = fact(values, [at for _, at in found.values()])
    for record in program.trace.calls:
        if record.method != "manual_seed" or not record.args:
            continue
        given = record.args[0]
        if any(isinstance(n, Param) and n.key.rpartition(".")[2] == "seed" for n in walk(given)):
            constants = [o.value for o in options(given) if isinstance(o, Const) and type(o.value) is int]
            if len(constants) == 1:
                facts["detail.request.default_seed"] = fact(constants[0], [record.at, given.at])
    return facts


def parameters(program: Program) -> list[Param]:
    """Return everything of the request and the options that calls and tests of the run depend on, each once."""
    return _parameters(program, len(program.trace.calls), len(program.trace.tests))


@once
def _parameters(program: Program, calls: int, tests: int) -> list[Param]:
    """The same of the first calls and tests, to which others may be added."""
    values = [v for r in program.trace.calls[:calls] for v in (*r.args, *r.kwargs.values(), r.result)]
    values += [test.cond for test in program.trace.tests[:tests]]
    return [node for node in reach_last(values, lambda node: node.parts()) if isinstance(node, Param)]


# Sizes of the result and the count of steps, where the request gives none.

_COUNTS = {"answers.scheduler.steps", "detail.scheduler.default_steps"}
SIZES = ("height", "width", "num_frames", STEPS_KEY)


def _request_sizes(program: Program) -> dict[str, Fact]:
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
    return {"detail.request.sizes": fact(sizes, places.values(), sure)} if sizes else {}


def _is_declared(program: Program, given: Param) -> bool:
    """Whether a setting's default is the one that stands in the class of the sampling parameters."""
    declared = (
        program.execution.sampling_class.find_assign(given.key)
        if program.execution.sampling_class is not None
        else None
    )
    place = given.default.at if given.default is not None else None
    return declared is not None and place == Evidence(declared[0].module.file, declared[1].lineno)
