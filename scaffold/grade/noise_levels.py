"""How a partial package computes the noise levels of the schedule: section ``[levels]`` of its spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaffold.grade.established import Established

OBJECT, VECTOR, TURN, SUMMED, LINE = "object", "vector", "turn", "summed", "line"
KINDS = (OBJECT, VECTOR, TURN, SUMMED, LINE)
SIZE, STEPS, PATH = "latent_size", "num_inference_steps", "model_path"


def noise_levels(facts: Established) -> dict[str, Any]:
    """Return the section; its ``kind`` is None where the levels are not established.

    ``object``: a scheduler class, of diffusers or ported, that is built and called as in the pipeline. ``vector`` and
    ``turn``: an expression for all points, or for the time of step ``step``. ``summed``: times that fall by 1/n,
    accumulated in float32. ``line``: a straight line from 1 to 0, shifted by a constant.
    """
    section = _object(facts) or _written(facts) or _summed(facts) or _line(facts) or {"kind": None}
    text = repr(section)
    section["needs_size"], section["needs_path"] = SIZE in text, PATH in text or section.get("folder") is not None
    section["imports"] = [name for name, used in (("math", "math."), ("numpy", "np.")) if used in text]
    section["reads_settings"] = "setting(" in text
    return section


def _object(facts: Established) -> dict[str, Any] | None:
    origin, made = facts.value("detail.scheduler.origin"), facts.value("detail.scheduler.made")
    asked, levels = facts.value("detail.scheduler.asked"), facts.value("detail.scheduler.levels")
    if origin is None or made is None or not asked or levels is None:
        return None
    first = facts.value("detail.schedule.first_level")
    return {
        "kind": OBJECT,
        "source": origin["kind"],
        "module": origin["module"],
        "class": origin["class"],
        "folder": made["folder"],
        "arguments": _pairs(made["arguments"] or {}),
        "assigned": _pairs(made["assigned"]),
        "configured": _pairs(made["configured"]),
        "asked": _pairs(asked),
        "levels": levels,
        "first": first if first is not None and first < 1 else None,
        "ends_at_zero": facts.value("detail.schedule.last_level") == 0.0,
    }


def _pairs(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _written(facts: Established) -> dict[str, Any] | None:
    found, direction = facts.value("detail.schedule.written"), facts.value("answers.scheduler.direction")
    if found is None or direction is None or facts.value("answers.scheduler.steps") != "n":
        return None
    if found["form"] == TURN and facts.value("detail.schedule.turn_times") not in ("i / n", "1 - i / n"):
        return None  # the timestep passed to the model is not that of the sample, but, say, the middle of a step
    return {"kind": found["form"], "text": found["text"], "rises": direction == "ascending"}


def _summed(facts: Established) -> dict[str, Any] | None:
    times = facts.value("detail.schedule.turn_times")
    if times != "1 - i / n, summed" or facts.value("answers.scheduler.steps") != "n":
        return None
    return {"kind": SUMMED}


def _line(facts: Established) -> dict[str, Any] | None:
    """A straight line that the loop computes itself: a scheduler's may begin and end elsewhere."""
    known = (
        facts.value("detail.scheduler.origin") is None
        and facts.value("answers.scheduler.steps") in ("n", "n-1")
        and isinstance(facts.value("answers.scheduler.shift"), int | float)
        and facts.value("answers.scheduler.direction") in ("descending", "ascending")
        and facts.value("detail.schedule.kind") in (None, "linear", "ascending")
        and facts.value("detail.schedule.grid") in ([1.0, 0.0], [0.0, 1.0])
    )
    return {"kind": LINE} if known else None
