"""[docs]: what documentation pages carry: the date, and what was measured of a run."""

import os
from datetime import datetime, timezone

from scaffold.errors import ScaffoldError
from scaffold.spec.section import Section

CLOCK = "day of rendering"


def fill(section: Section) -> None:
    """Put what was measured, which was not of edits, and the date: the flag's, else today.

    ``SOURCE_DATE_EPOCH`` says which day today is, where it is set.
    """
    for key in ("memory", "step") if section.sources.report.task is None else ():
        if section.sources.preset.value(section.name, key) is not None:
            section.preset(key)
    if section.sources.date is not None:
        section.put("last_updated", section.sources.date, "flag --date")
        return
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    if seconds and not (seconds.isdecimal() and len(seconds) < 12):
        raise ScaffoldError(f"SOURCE_DATE_EPOCH is {seconds!r}", hint="it is a number of seconds, or unset it")
    day = datetime.fromtimestamp(int(seconds), timezone.utc) if seconds else datetime.now().astimezone()
    section.put("last_updated", day.strftime("%m/%d/%Y"), CLOCK)
