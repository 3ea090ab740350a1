"""[tiny]: the parts of the tiny checkpoint that the smoke test builds offline."""

from scaffold.spec.section import Section

ORDER = 60


def fill(section: Section) -> None:
    """Take the preset's section as it is."""
    for key in section.sources.preset.sections.get(section.name, {}):
        section.preset(key)
