"""The edits of the target's own files that make it find the rendered ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from scaffold.errors import ScaffoldError
from scaffold.files.layout import layout_of
from scaffold.plan.hooks import RegistryEdit
from scaffold.plan.models_page import ModelsPageEdit
from scaffold.plan.runner import RunnerEdit, SmokeGroupEdit
from scaffold.render.rendered import RenderedFile

# An example page's entry in the Examples toctree of the documentation's index, as text.

_OPEN = "```{toctree}"
_CLOSE = "```"
_CAPTION = ":caption: Examples"
_DEPTH = ":maxdepth: 2"
_PAGE = re.compile(r"[A-Za-z0-9_./-]+", re.ASCII)


def add_page(source: str, page: str, *, path: str) -> str:
    """List ``page`` at the end of the toctree; one that is listed stays where it is.

    Args:
        source: text of the index.
        page: path of the page from the folder of the index.
        path: how messages name the index.

    Raises:
        ScaffoldError: there is no toctree with the caption Examples.
    """
    if not _PAGE.fullmatch(page):
        raise ScaffoldError(f"{path}: {page!r} cannot be written as an entry")
    lines = source.splitlines(keepends=True)
    first, last = _toctree(lines, path)
    if any(line.strip() == page for line in lines[first:last]):
        return source
    while last > first and not lines[last - 1].strip():
        last -= 1
    newline = "\r\n" if "\r\n" in source else "\n"
    return "".join([*lines[:last], page + newline, *lines[last:]])


def remove_page(source: str, page: str, *, path: str) -> str:
    """Undo `add_page`; an index without the page stays as it is."""
    lines = source.splitlines(keepends=True)
    if all(line.strip() != page for line in lines):
        return source
    first, last = _toctree(lines, path)
    return "".join(line for i, line in enumerate(lines) if not (first <= i < last and line.strip() == page))


@dataclass(frozen=True)
class DocsIndexEdit:
    """`add_page` and `remove_page` for one page, as an edit of the index at ``path``."""

    path: str
    page: str

    def apply(self, source: str) -> str:
        """Return the index with the page."""
        return add_page(source, self.page, path=self.path)

    def revert(self, source: str) -> str:
        """Return the index without the page."""
        return remove_page(source, self.page, path=self.path)


def _toctree(lines: list[str], path: str) -> tuple[int, int]:
    """Return the first and the closing line of the toctree of examples.

    Another toctree, of a page of settings, may have the same caption; only the one of examples has two levels.
    """
    found = []
    for start, line in enumerate(lines):
        if line.strip() != _OPEN:
            continue
        end = next((i for i in range(start + 1, len(lines)) if lines[i].strip() == _CLOSE), None)
        options = {line.strip() for line in lines[start + 1 : end] if line.startswith(":")}
        if end is not None and _CAPTION in options:
            found.append((_DEPTH in options, start + 1, end))
    if not found:
        raise ScaffoldError(f"{path}: expected a toctree with the caption Examples")
    _, first, last = max(found)
    return first, last


E2E_SCRIPTS = "tests/special_e2e/"
DOCS = "docs/"
DOCS_INDEX = "docs/index.md"
EXAMPLES = "examples/flowgrpo_trainer/"
# Headings of the page of models, by what a model generates; the page has no other kinds.
HEADINGS = {"image": "Diffusion Image Models", "video": "Diffusion Video Models"}


class FileEdit(Protocol):
    """An idempotent, reversible change to one file."""

    @property
    def path(self) -> str:
        """POSIX path of the file from the repository's root."""

    def apply(self, source: str) -> str:
        """Return the text with the edit."""

    def revert(self, source: str) -> str:
        """Return the text without it: ``revert(apply(text)) == text``."""


def needs_file(edit: FileEdit) -> bool:
    """Whether a checkout must have the edit's file; the page of models and the smoke groups are optional."""
    return not isinstance(edit, SmokeGroupEdit | ModelsPageEdit)


def wiring_edits(files: Mapping[str, RenderedFile], context: Mapping[str, Any]) -> tuple[FileEdit, ...]:
    """Return the edits that wire rendered files into the target.

    The package goes into the registry, each end-to-end script into the smoke runner, each linked example page into the
    index of the documentation. A package that runs is added to the groups of smoke tests, a complete one to the page of
    models. A project of its own needs none of these.

    Args:
        files: what was rendered.
        context: the spec's sections ``names``, ``target``, ``grade``, ``media``, ``recipe`` and ``upstream``.
    """
    names, target = context["names"], context["target"]
    if layout_of(target).external:
        return ()
    edits: list[FileEdit] = [RegistryEdit(names["package"])]
    runner = target.get("smoke_runner")
    for path, file in sorted(files.items()):
        if runner and path.startswith(E2E_SCRIPTS) and path.endswith(".sh"):
            edits.append(RunnerEdit(runner, path, f"{names['prefix']} FlowGRPO trainer e2e"))
        if file.link_to is not None and path.startswith(DOCS):
            edits.append(DocsIndexEdit(target.get("docs_index") or DOCS_INDEX, path.removeprefix(DOCS)))
    scripts = [path for path in sorted(files) if path.startswith(f"{EXAMPLES}{names['model']}/run_")]
    grade = context.get("grade", {})
    runs = scripts and grade.get("value") in ("complete", "unproven") and not grade.get("refuses")
    if runs and target.get("smoke_groups"):
        # The group's own patterns already match the scripts' names.
        smoke = tuple(path for path in sorted(files) if path.startswith(E2E_SCRIPTS))
        tests = [path for path in smoke if not path.endswith(".sh")]
        patterns = (*tests, f"{EXAMPLES}{names['model']}/**")
        edits.append(SmokeGroupEdit(target["smoke_groups"], patterns, smoke))
    heading = HEADINGS.get(context.get("media", {}).get("kind") or "image")
    if runs and grade["value"] == "complete" and heading and target.get("models_page"):
        edits.append(_models_entry(target["models_page"], heading, scripts, context))
    return tuple(edits)


def _models_entry(page: str, heading: str, scripts: list[str], context: Mapping[str, Any]) -> ModelsPageEdit:
    names, gpus = context["names"], context["recipe"]["gpus"]
    upstream = context["upstream"]
    properties = [("Rollout", f"`{upstream['class']}` of vLLM-Omni {upstream['version']}")]
    if names.get("repository"):
        properties.insert(0, ("Hugging Face ID", f"`{names['repository']}`"))
    rows = [(f"Flow-GRPO ({'LoRA' if path.endswith('_lora.sh') else 'full'})", path, f"{gpus}×GPU") for path in scripts]
    return ModelsPageEdit(page, heading, str(names["display"]), tuple(properties), tuple(rows))
