"""Values that a person set in ``scaffold.toml``: `new` made again does not take them back in silence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.new.recorded import SPEC_NAME, package_path, recorded_spec

if TYPE_CHECKING:
    from scaffold.plan import Plan
    from scaffold.spec import IntegrationSpec

# The tool and the target say these themselves.
_NOBODYS = ("tool.", "target.", "upstream.version")


def keep_hand_set(plan: Plan, spec: IntegrationSpec) -> Plan:
    """Return the plan with a conflict where the checkout's own spec has values set by hand that ``spec`` has not."""
    _, recorded = recorded_spec(plan.root, spec)
    names = hand_set(recorded, spec) if recorded is not None else ()
    if not names:
        return plan
    path = f"{package_path(spec)}/{SPEC_NAME}"
    conflict = f"set by hand: {', '.join(names)}"
    changes = tuple(replace(change, conflict=conflict) if change.path == path else change for change in plan.changes)
    return replace(plan, changes=changes, conflict_hint="`update` keeps them; --force overwrites them")


def hand_set(recorded: IntegrationSpec, new: IntegrationSpec) -> tuple[str, ...]:
    """Return ``section.key`` of each recorded value that is not the tool's own and is another one in ``new``."""
    from scaffold.spec.derived import comparable, digest

    if not recorded.derived:
        return ()  # an older spec does not tell
    found = []
    for section, values in recorded.sections.items():
        for key, value in values.items():
            name = f"{section}.{key}"
            mine = value is not None and digest(value) != recorded.derived.get(name)
            other = new.sections.get(section, {}).get(key)
            if mine and not name.startswith(_NOBODYS) and comparable(value) != comparable(other):
                found.append(name)
    return tuple(found)
