"""Where a schedule that was worked out differs from what ``scaffold.toml`` records, or timesteps from noise levels."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from scaffold.check.model.calls import keyword
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded, recorded_facts
from scaffold.check.model.schedules import SPACED
from scaffold.check.model.worked_schedule import PER_UNIT, close, worked_schedule

Difference = tuple[FunctionModel, ast.AST, str, str]
# What is recorded of a schedule that is spaced evenly and shifted once, and nothing else.
_PLAIN = {"established", "steps", "request_offset", "shift", "direction"}


def differences(package: Package, adapter: ClassModel) -> Iterator[Difference]:
    """Work the schedule out for a few steps; yield place, message and help where it is not the pipeline's."""
    if not package.mentions("timesteps"):
        return
    worked = worked_schedule(adapter)
    if worked is None or len(worked.sigmas) < 3:
        return
    levels, times = worked.sigmas[:-1], worked.timesteps
    own = [function for function in worked.entered if function.file in package.files]
    if not close(times, levels):
        text = _of_timesteps(package, levels, times)
        at = next(((f, node) for f in reversed(own) for node in _stored_timesteps(f)), None)
        if text is not None and at is not None:
            yield (at[0], at[1], text, "take scheduler.sigmas[:-1], the noise levels at which the model is run")
    shift = recorded(package, "schedule", "shift")
    facts = recorded_facts(package)
    if shift is None or not re.fullmatch(r"\d+(\.\d+)?", shift) or facts.get("levels"):
        return
    if not set(facts.get("schedule", {})) <= _PLAIN:
        return
    count, rate = len(levels), float(shift)
    if recorded(package, "schedule", "direction") != "descending":
        return
    plain = [1 - i / count for i in range(count)]
    wanted = [rate * t / (1 + (rate - 1) * t) for t in plain]
    if close(levels, wanted):
        return
    middle = max(range(count), key=lambda at: abs(levels[at] - wanted[at]))
    place = next(((f, node) for f in reversed(own) for node in _computed(f)), None)
    if place is not None:
        at_middle = f"{levels[middle]:.3f}, the pipeline's {wanted[middle]:.3f}"
        text = f"after {middle} of {count} steps the noise level is {at_middle}"
        yield (*place, text, f"the pipeline's time shift is s * t / (1 + (s - 1) * t), s = {rate:g}")


def _of_timesteps(package: Package, levels: list[float], times: list[float]) -> str | None:
    if len(times) == len(levels) + 1 and close(times[:-1], levels) and abs(times[-1]) < 1e-9:
        return "the timesteps end with the terminal noise level 0, at which no step is taken"
    if recorded(package, "schedule", "shift") is None:
        return None
    if len(times) == len(levels) and close(times, [PER_UNIT * level for level in levels]):
        return f"the timesteps are {PER_UNIT} times the noise levels, and the trajectory holds the levels themselves"
    return "the timesteps are not the noise levels of their steps"


def _stored_timesteps(function: FunctionModel) -> list[ast.expr]:
    """Return what a function makes the timesteps of a scheduler."""
    assigned = function.file.index.nodes(ast.Assign, function.node)
    stored = [n.value for n in assigned for t in n.targets if isinstance(t, ast.Attribute) and t.attr == "timesteps"]
    given = [value for call in function.calls if (value := keyword(call, "timesteps")) is not None]
    return [*stored, *given]


def _computed(function: FunctionModel) -> list[ast.AST]:
    """Return what computes noise levels in a function: the shift it returns, else where it spaces them."""
    shifts = [name for name in (function.name, *function.parameters) if "shift" in name.lower()]
    returned = [item.value for item in function.returns if isinstance(item.value, ast.BinOp)]
    spaced = [c for c in function.calls if function.file.qualified(c.func) in SPACED and len(c.args) >= 2]
    return [*(returned if shifts else []), *spaced]
