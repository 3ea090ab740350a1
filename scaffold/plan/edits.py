"""Which files of the target are edited so that the rendered ones are found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from scaffold.plan.docs_index import DocsIndexEdit
from scaffold.plan.hooks import RegistryEdit
from scaffold.plan.runner import RunnerEdit
from scaffold.render.rendered import RenderedFile

E2E_SCRIPTS = "tests/special_e2e/"
DOCS = "docs/"
DOCS_INDEX = "docs/index.md"


class FileEdit(Protocol):
    """A change to one file that can be made twice without harm, and undone."""

    @property
    def path(self) -> str:
        """POSIX path of the file from the repository's root."""

    def apply(self, source: str) -> str:
        """Return the text with the edit."""

    def revert(self, source: str) -> str:
        """Return the text without it: ``revert(apply(text)) == text``."""


def wiring_edits(files: Mapping[str, RenderedFile], context: Mapping[str, Any]) -> tuple[FileEdit, ...]:
    """Return the edits that wire rendered files into the target.

    The package goes into the registry, each end-to-end script into the smoke runner, each linked example page into
    the index of the documentation.

    Args:
        files: what was rendered.
        context: the spec's sections; ``names.package``, ``names.prefix`` and ``target.smoke_runner`` are read.
    """
    names, target = context["names"], context["target"]
    edits: list[FileEdit] = [RegistryEdit(names["package"])]
    runner = target.get("smoke_runner")
    for path, file in sorted(files.items()):
        if runner and path.startswith(E2E_SCRIPTS) and path.endswith(".sh"):
            edits.append(RunnerEdit(runner, path, f"{names['prefix']} FlowGRPO trainer e2e"))
        if file.link_to is not None and path.startswith(DOCS):
            edits.append(DocsIndexEdit(target.get("docs_index") or DOCS_INDEX, path.removeprefix(DOCS)))
    return tuple(edits)
