"""The spec that the tool would make of a pipeline now, with the names and the checkpoint of a recorded one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.spec import IntegrationSpec
    from scaffold.target import ContractProfile


def derive(recorded: IntegrationSpec, report: Report, profile: ContractProfile) -> IntegrationSpec:
    """Return the spec of a report for a recorded package.

    Raises:
        ScaffoldError: the pipeline and the recorded checkpoint do not go together.
        RefusedError: the pipeline has become something that no template renders.
    """
    from scaffold.grade import PARTIAL, grade_of, specify
    from scaffold.lifecycle.spec_headers import headers_of
    from scaffold.new import refuse
    from scaffold.render import derive_names
    from scaffold.spec import SpecRequest, build_spec, find_preset
    from scaffold.upstream import locate

    refuse(report)
    names = derive_names(str(recorded.value("names.model")))
    preset = find_preset(names.model, report.fact("detail.pipeline.registry_key").value)
    if grade_of(recorded) == PARTIAL:
        return specify(SpecRequest(report, names, profile), locate(report.upstream.version)).spec
    # What was made from a packaged manifest is made from it again.
    packaged = recorded.provenance.get("architecture.hidden_size") == f"manifest {preset.manifest}"
    return build_spec(SpecRequest(report, names, profile, None if packaged else headers_of(recorded, report)))
