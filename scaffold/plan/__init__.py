"""Plans files and edits in memory, shows them, and writes all or none."""

from __future__ import annotations

from scaffold.plan.change import PlannedChange
from scaffold.plan.edits import FileEdit, wiring_edits
from scaffold.plan.output import plan_checkout, plan_output
from scaffold.plan.plan import Plan
from scaffold.plan.transaction import recover

__all__ = ["FileEdit", "Plan", "PlannedChange", "plan_checkout", "plan_output", "recover", "wiring_edits"]
