"""What changed, by name, in the files of vllm-omni that a package executes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.source.changes import changed_definitions

if TYPE_CHECKING:
    from scaffold.spec import IntegrationSpec
    from scaffold.upstream import UpstreamSource


@dataclass(frozen=True)
class ExecutedChange:
    """A file whose text is another one.

    Attributes:
        file: relative to the folder that holds ``vllm_omni``.
        changed: functions, classes and methods that changed, are new or are gone; empty where only comments did.
        gone: whether there is no such file any more.
    """

    file: str
    changed: tuple[str, ...]
    gone: bool = False


def executed_changes(spec: IntegrationSpec, old: UpstreamSource, new: UpstreamSource) -> tuple[ExecutedChange, ...]:
    """Return the files of a package's denoiser that changed between two versions, with what changed in each."""
    files = [str(entry["file"]) for entry in spec.value("port.executed") or []]
    return tuple(_changes(files, old, new))


def _changes(files: Iterable[str], old: UpstreamSource, new: UpstreamSource) -> Iterator[ExecutedChange]:
    for file in files:
        if not new.exists(file):
            yield ExecutedChange(file, (), gone=True)
            continue
        if not old.exists(file) or old.read(file) == new.read(file):
            continue
        try:
            yield ExecutedChange(file, changed_definitions(old.tree(file), new.tree(file)))
        except ScaffoldError:
            yield ExecutedChange(file, ())
