"""``retrieve_timesteps`` of diffusers: it asks a scheduler for a schedule and hands the times back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaffold.inspect.program.conditions import none_ness
from scaffold.inspect.program.values import NONE, Op, Seq
from scaffold.source.values import Evidence, Value

if TYPE_CHECKING:
    from scaffold.inspect.program.core import Execution

_NAMES = ("scheduler", "num_inference_steps", "device", "timesteps", "sigmas")
_OWN_SCHEDULES = ("timesteps", "sigmas")


def is_retrieval(path: str) -> bool:
    """Whether a dotted path names the function, which each family of pipelines of diffusers has a copy of."""
    return path.startswith("diffusers.") and path.endswith(".retrieve_timesteps")


def retrieve_timesteps(
    run: Execution, args: list[Value], kwargs: dict[str, Value], at: Evidence | None
) -> Value | None:
    """Call ``set_timesteps`` with the first of times, levels and number of steps that is given.

    Returns:
        The scheduler's times and the number of steps; None where the scheduler is not given.
    """
    given = dict(zip(_NAMES, args, strict=False)) | kwargs
    scheduler = given.get("scheduler")
    if scheduler is None:
        return None
    rest = {name: value for name, value in given.items() if name not in _NAMES or name == "device"}
    conditions = len(run.path.conditions)
    for name in _OWN_SCHEDULES:
        schedule = given.get(name, NONE)
        absent = none_ness(schedule)
        if absent is True:
            continue
        cond = Op("isnot", [schedule, NONE], at=at)
        run.path.conditions.append((cond, True))
        run.call_method(scheduler, "set_timesteps", [], {name: schedule, **rest}, at)
        run.path.conditions[-1] = (cond, False)
        if absent is False:
            break
    else:
        run.call_method(scheduler, "set_timesteps", [given.get("num_inference_steps", NONE)], rest, at)
    del run.path.conditions[conditions:]
    times = run.get_attr(scheduler, "timesteps", at)
    return Seq("tuple", [times, given.get("num_inference_steps", NONE)], depth=run.path.depth, at=at)
