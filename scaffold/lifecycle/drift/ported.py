"""Lines of a ported package that change because the code that they were ported from does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.lifecycle.derive import derive
from scaffold.lifecycle.drift.hunks import Hunk, hunks
from scaffold.new import render_files

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.lifecycle.drift.resting import Rendering
    from scaffold.lifecycle.package import ScaffoldedPackage
    from scaffold.port import Port
    from scaffold.upstream import UpstreamSource


def ported_hunks(
    package: ScaffoldedPackage, rendering: Rendering, report: Report, source: UpstreamSource
) -> tuple[tuple[Hunk, ...], str | None]:
    """Return the differences that a package has when the same spec is rendered with the newer code, or why not.

    Args:
        package: a ported package.
        rendering: what its spec renders with the older code.
        report: the pipeline in the newer version.
        source: the newer version.
    """
    try:
        port = derive(package.spec, report, package.profile, source, team=package.team).port
        if port is None:
            return (), f"vllm-omni {source.label} has no denoiser of this pipeline that can be ported"
        files = render_files(package.spec, [], _labelled(port, rendering.report, report))
    except ScaffoldError as error:
        return (), error.line
    return hunks(rendering.files, files), None


def _labelled(port: Port, before: Report, after: Report) -> Port:
    """Return the port with the older version in its text: the number alone is not a change."""
    old, new = (f"vllm-omni {report.upstream.version or report.upstream.label}" for report in (before, after))
    scheduler = port.scheduler.replace(new, old) if port.scheduler is not None else None
    return replace(port, source=port.source.replace(new, old), scheduler=scheduler)
