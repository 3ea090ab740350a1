"""[schedule]: noise levels that rollout and training share."""

from scaffold.spec.section import Section

ORDER = 20

_EVALUATIONS = {"n": 0, "n-1": -1}


def fill(section: Section) -> None:
    """Put steps and shift; ``request_offset`` makes a release that counts otherwise run the recipe's steps."""
    upstream = section.before["upstream"]["steps"]
    steps = section.preset_or_fact("steps", "answers.scheduler.steps")
    if upstream is None:
        # The recipe's count cannot be asked of a pipeline whose own is not known.
        steps = section.put("steps", None, "")
    offset = None
    if steps is not None and upstream is not None:
        offset = _EVALUATIONS[steps] - _EVALUATIONS[upstream]
    section.put("request_offset", offset, "schedule.steps less upstream.steps")
    section.fact("shift", "answers.scheduler.shift")
    section.fact("direction", "answers.scheduler.direction")
