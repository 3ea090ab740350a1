"""[tool]: which omni-scaffold made the package."""

from scaffold import __version__
from scaffold.spec.section import Section


def fill(section: Section) -> None:
    """Put the tool's version."""
    section.put("version", __version__, "omni-scaffold")
