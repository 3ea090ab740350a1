"""[docs]: what documentation pages must carry."""

from scaffold.spec.section import Section

ORDER = 90


def fill(section: Section) -> None:
    """Put the date: the flag's, else the preset's; never the clock's."""
    if section.sources.date is not None:
        section.put("last_updated", section.sources.date, "flag --date")
    else:
        section.preset("last_updated", "01/01/2026")
