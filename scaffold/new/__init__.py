"""``omni-scaffold new``: from a pipeline and a checkpoint to a planned integration."""

from scaffold.new.package import render_package
from scaffold.new.plan import NewResult, plan_new
from scaffold.new.recorded import SPEC_NAME, package_path
from scaffold.new.refusal import refuse
from scaffold.new.request import NewRequest
from scaffold.new.uncommitted import uncommitted_notes

__all__ = [
    "SPEC_NAME",
    "NewRequest",
    "NewResult",
    "package_path",
    "plan_new",
    "refuse",
    "render_package",
    "uncommitted_notes",
]
