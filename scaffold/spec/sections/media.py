"""[media]: what a request brings beside its text; the section is there where the task is to edit an image."""

from scaffold.spec.section import Section


def fill(section: Section) -> None:
    """Put the kinds of files, as a package with a ported denoiser has them."""
    task = section.sources.report.task
    if task is None:
        return
    origin = "flag --task"
    for key, value in {
        "kind": "image",
        "inputs": ["image"],
        "sends": ["image"],
        "required": ["image"],
        "lacks": [],
        "ocr": False,
        "structured": False,
    }.items():
        section.put(key, value, origin)
