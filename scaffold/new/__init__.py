"""``omni-scaffold new``: from a pipeline and a checkpoint to a planned integration."""

from scaffold.new.package import render_files, render_package
from scaffold.new.plan import NewResult, plan_new, uncommitted_notes
from scaffold.new.recorded import package_path, record_paths
from scaffold.new.refusal import refuse
from scaffold.new.request import NewRequest

__all__ = [
    "NewRequest",
    "NewResult",
    "package_path",
    "plan_new",
    "record_paths",
    "refuse",
    "render_files",
    "render_package",
    "uncommitted_notes",
]
