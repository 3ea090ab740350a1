"""[schedule]: noise levels that rollout and training share."""

from __future__ import annotations

import re

from scaffold.spec.section import Section

EULER = "FlowMatchEulerDiscreteScheduler"

_COUNT = re.compile(r"n([+-]\d+)?")


def fill(section: Section) -> None:
    """Put steps and shift; ``request_offset`` makes a release that counts otherwise run the recipe's steps."""
    upstream = section.before["upstream"]["steps"]
    steps = section.preset_or_fact("steps", "answers.scheduler.steps")
    if upstream is None:
        # The recipe's count cannot be asked of a pipeline whose own is not known.
        steps = section.put("steps", None, "")
    wanted, counted = _beside_n(steps), _beside_n(upstream)
    offset = None if wanted is None or counted is None else wanted - counted
    section.put("request_offset", offset, "schedule.steps less upstream.steps")
    section.preset_or_fact("shift", "answers.scheduler.shift", float)
    if section.sources.report.value("answers.scheduler.class") not in (None, EULER):
        section.fact("solver", "answers.scheduler.class")
    if section.fact("direction", "answers.scheduler.direction") == "ascending":
        section.put("kind", "ascending", section.provenance["schedule.direction"])
    if section.known_fact("kind", "detail.schedule.kind") is not None:
        section.fact("parts", "detail.schedule.parts")
        section.fact("start_level", "detail.schedule.start_level")
        start, shift, parts = (section.values[key] for key in ("start_level", "shift", "parts"))
        level = _shifted(_shifted(start, shift), shift)  # the grid's start is shifted, and then the grid is
        highest = int(level * parts) / parts
        section.put("highest_level", highest, "schedule.start_level, shifted twice and cut to whole parts")


def _shifted(level: float, shift: float) -> float:
    """Return a noise level after the schedule's time shift."""
    return shift * level / (1 + (shift - 1) * level)


def _beside_n(steps: str | None) -> int | None:
    """What is added to n in a count of steps; None where it is no such sum, which no offset mends."""
    found = _COUNT.fullmatch(steps or "")
    return int(found[1] or 0) if found else None
