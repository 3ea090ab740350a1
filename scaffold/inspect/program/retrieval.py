"""``retrieve_timesteps`` of diffusers: it asks a scheduler for a schedule and hands the times back."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program.conditions import none_ness
from scaffold.inspect.program.core import Core
from scaffold.inspect.program.values import NONE, Op, Seq, Value

_NAMES = ("scheduler", "num_inference_steps", "device", "timesteps", "sigmas")
_OWN_SCHEDULES = ("timesteps", "sigmas")


def is_retrieval(path: str) -> bool:
    """Whether a dotted path names the function, which each family of pipelines of diffusers has a copy of."""
    return path.startswith("diffusers.") and path.endswith(".retrieve_timesteps")


def retrieve_timesteps(program: Core, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
    """Call ``set_timesteps`` with the first of times, levels and number of steps that is given.

    Returns:
        The scheduler's times and the number of steps; None where the scheduler is not given.
    """
    given = dict(zip(_NAMES, args, strict=False)) | kwargs
    scheduler = given.get("scheduler")
    if scheduler is None:
        return None
    rest = {name: value for name, value in given.items() if name not in _NAMES or name == "device"}
    conditions = len(program.conditions)
    for name in _OWN_SCHEDULES:
        schedule = given.get(name, NONE)
        absent = none_ness(schedule)
        if absent is True:
            continue
        cond = Op("isnot", [schedule, NONE], at=at)
        program.conditions.append((cond, True))
        program.call_method(scheduler, "set_timesteps", [], {name: schedule, **rest}, at)
        program.conditions[-1] = (cond, False)
        if absent is False:
            break
    else:
        program.call_method(scheduler, "set_timesteps", [given.get("num_inference_steps", NONE)], rest, at)
    del program.conditions[conditions:]
    times = program.get_attr(scheduler, "timesteps", at)
    return Seq("tuple", [times, given.get("num_inference_steps", NONE)], depth=program.depth, at=at)
