"""Finds the content a file was rendered with, proved by the SHA-256 in ``scaffold.lock.toml``.

Candidates are tried in this order until one has that digest: the file itself, the rendering of the recorded spec, the
path's history in git, and the rendering of a spec made again from the recorded version of vllm-omni (a person may have
edited the spec since). Similar content is never accepted as the base.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.files.git import versions
from scaffold.lifecycle.merge_spec import REPRODUCED
from scaffold.new import render_files
from scaffold.plan.change import FileState

if TYPE_CHECKING:
    from scaffold.grade import Graded
    from scaffold.lifecycle.package import ScaffoldedPackage
    from scaffold.port import Port
    from scaffold.spec import IntegrationSpec


class Bases:
    """Finds the base of each recorded file of a package."""

    def __init__(self, package: ScaffoldedPackage, derived: Callable[[], Graded] | None = None) -> None:
        """``derived`` makes the spec of the recorded version again; it is called only if all other candidates fail."""
        self._package = package
        self._derived = derived

    def find(self, path: str, state: FileState | None) -> bytes | None:
        """Return the content ``path`` was rendered with, or None if no candidate has its digest.

        Args:
            path: a recorded path.
            state: what is there now.
        """
        digest = self._package.spec.files[path]
        if state is not None and state.content_sha256 == digest:
            return state.content
        for content in self._candidates(path):
            if hashlib.sha256(content).hexdigest() == digest:
                return content
        return None

    def _candidates(self, path: str) -> Iterator[bytes]:
        if path in self._rendered:
            yield self._rendered[path]
        yield from versions(self._package.root, path)
        if path in self._rederived:
            yield self._rederived[path]

    @cached_property
    def _rendered(self) -> Mapping[str, bytes]:
        return _render(self._package.spec)

    @cached_property
    def _rederived(self) -> Mapping[str, bytes]:
        if self._derived is None:
            return {}
        try:
            found = self._derived()
        except ScaffoldError:
            return {}  # the old vllm-omni is not available; other candidates remain
        derived, spec = found.spec, self._package.spec
        sections = {name: dict(values) for name, values in spec.sections.items()}
        for key, origin in spec.provenance.items():
            section, _, name = key.partition(".")
            if origin.startswith(REPRODUCED) and section in sections and name in derived.sections.get(section, {}):
                sections[section][name] = derived.sections[section][name]
        sections["upstream"]["version"] = spec.value("upstream.version")
        return _render(replace(spec, sections=sections), found.port)


def _render(spec: IntegrationSpec, port: Port | None = None) -> dict[str, bytes]:
    try:
        files = render_files(spec, [], port)
    except ScaffoldError:
        return {}
    return {path: FileState.of(file).content for path, file in files.items()}
