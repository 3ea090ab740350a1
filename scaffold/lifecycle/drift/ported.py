"""Lines of a ported package that change because their upstream code changed."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.lifecycle.derive import derive
from scaffold.lifecycle.drift.hunks import Hunk, hunks
from scaffold.new import render_files

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.lifecycle.drift.resting import Rendering
    from scaffold.lifecycle.package import ScaffoldedPackage
    from scaffold.upstream import UpstreamSource


def ported_hunks(
    package: ScaffoldedPackage, rendering: Rendering, report: Report, source: UpstreamSource
) -> tuple[tuple[Hunk, ...], str | None]:
    """Return how a package differs if the same spec is rendered with the newer code, or why that is unknown.

    Args:
        package: a ported package.
        rendering: what its spec renders with the older code.
        report: the pipeline in the newer version.
        source: the newer version.
    """
    try:
        named = _labelled(source, rendering.report)
        port = derive(package.spec, report, package.profile, named, team=package.team).port
        if port is None:
            return (), f"vllm-omni {source.label} has no denoiser of this pipeline that can be ported"
        files = render_files(package.spec, [], port)
    except ScaffoldError as error:
        return (), error.line
    return hunks(rendering.files, files), None


def _labelled(source: UpstreamSource, before: Report) -> UpstreamSource:
    """Return the newer code labelled with the older version: the version number, and its wrapping, is no change."""
    named = copy(source)
    named.version = before.upstream.version or before.upstream.label
    return named
