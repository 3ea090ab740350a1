"""The spec that the tool would make of a pipeline now, with the names and the checkpoint of a recorded one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.grade import compose, is_ported, specify
from scaffold.lifecycle.spec_headers import headers_of
from scaffold.new import refuse
from scaffold.render import derive_names
from scaffold.spec import SpecRequest
from scaffold.team import PACKAGED

if TYPE_CHECKING:
    from scaffold.grade import Graded
    from scaffold.inspect import Report
    from scaffold.spec import IntegrationSpec
    from scaffold.target import ContractProfile
    from scaffold.team import Team
    from scaffold.upstream import UpstreamSource


def derive(
    recorded: IntegrationSpec,
    report: Report,
    profile: ContractProfile,
    source: UpstreamSource,
    ported: Graded | None = None,
    team: Team | None = None,
) -> Graded:
    """Return the spec of a report for a recorded package; of a ported package with its port.

    Args:
        recorded: the package's spec.
        report: the pipeline, read from ``source``; single facts of it may have been altered since.
        profile: the release of verl-omni to write for.
        source: the version of vllm-omni that a denoiser is ported from.
        ported: what this function returned for the report as it was read; its port is not made again.
        team: whose presets go before the packaged ones.

    Raises:
        ScaffoldError: the pipeline and the recorded checkpoint do not go together.
        RefusedError: the pipeline has become something that no template renders.
    """
    refuse(report)
    names = derive_names(str(recorded.value("names.model")))
    request = SpecRequest(report, names, profile, team=team or PACKAGED)
    if is_ported(recorded):
        return specify(request, source, ported)
    # What was made from a packaged manifest is made from it again.
    packaged = recorded.provenance.get("architecture.hidden_size") == f"manifest {request.preset.manifest}"
    headers = None if packaged else headers_of(recorded, report)
    return compose(replace(request, headers=headers), source)
