"""A warning about work in the checkout that no commit has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaffold.files.git import uncommitted

if TYPE_CHECKING:
    from scaffold.plan import Plan

_SHOWN = 10


def uncommitted_notes(plan: Plan) -> list[str]:
    """Return a warning that names files of the checkout with changes that are not committed.

    What an earlier run wrote and nobody has committed yet is no reason for it.
    """
    ours = {change.path for change in plan.changes if change.action == "same"}
    found = [path for path in uncommitted(plan.root) if path not in ours]
    if not found:
        return []
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return [f"the checkout has changes that are not committed: {', '.join(found[:_SHOWN])}{more}"]
