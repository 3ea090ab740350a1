"""``check``: lints integrations against the guide's checklist and the known bugs; reads text, executes nothing."""

from scaffold.check.engine import check_paths
from scaffold.check.finding import Finding
from scaffold.check.report import CheckReport

__all__ = ["CheckReport", "Finding", "check_paths"]
