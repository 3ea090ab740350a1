"""[deploy]: the engine configuration of the example, for the pipelines that need one."""

from scaffold.spec.section import Section


def fill(section: Section) -> None:
    """Take the preset's section as it is; without one, say whether the engine needs a topology at all."""
    given = section.sources.preset.sections.get(section.name, {})
    for key in given:
        section.preset(key)
    if not given and section.says("detail.engine.class_by_config", True):
        section.put("needed", False, section.known("detail.engine.class_by_config")[1])
