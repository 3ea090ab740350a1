"""[deploy]: the engine configuration of the example, for the pipelines that need one."""

from scaffold.spec.section import Section

ORDER = 60


def fill(section: Section) -> None:
    """Take the preset's section as it is."""
    for key in section.sources.preset.sections.get(section.name, {}):
        section.preset(key)
