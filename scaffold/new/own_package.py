"""`new` over a package that it wrote before: what became of that since is not taken back, and the command is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.new.recorded import from_here, package_path, record_paths, recorded_spec
from scaffold.spec.derived import comparable, digest

if TYPE_CHECKING:
    from scaffold.new.request import NewRequest
    from scaffold.plan import Plan
    from scaffold.spec import IntegrationSpec

# The tool and the target say these themselves.
_NOBODYS = ("tool.", "target.", "upstream.version", "upstream.checkout_pin")


def keep_own(plan: Plan, spec: IntegrationSpec, request: NewRequest) -> Plan:
    """Return the plan with a conflict where the package that is there is of another version, or has values set by hand.

    Whatever is in conflict in a package of the tool's own, the hint is the ``update`` that does what is wanted.
    """
    stored = recorded_spec(plan.root, spec)
    if stored is None:
        return plan
    recorded, (path, _) = stored.spec, record_paths(spec)
    there, wanted = recorded.value("upstream.version"), spec.value("upstream.version")
    names = hand_set(recorded, spec) if request.spec is None else ()
    reasons = [f"made for vllm-omni {there}, not {wanted}"] if there != wanted else []
    reasons += [f"set by hand: {', '.join(names)}"] if names else []
    if reasons:
        conflict = "; ".join(reasons)
        changes = tuple(
            replace(change, conflict=conflict) if change.path == path else change for change in plan.changes
        )
        plan = replace(plan, changes=changes)
    command = f"omni-scaffold update {from_here(plan.root, package_path(spec))}"
    if request.spec is not None:
        own = Path(request.spec).resolve() == (plan.root / path).resolve()
        first = "" if own else f"set its values in {path} and "
        advice = f"{first}`{command} --spec` renders them, with your edits of other files kept"
    elif there != wanted:
        advice = f"`{command} --vllm-omni {request.vllm_omni or wanted}` carries the package there and keeps your edits"
    elif names:
        advice = f"`{command} --spec` renders the values that you set, `{command}` renders anew and keeps them"
    else:
        advice = f"`{command}` renders anew and keeps your edits"
    return replace(
        plan,
        conflict_message="`new` wrote this package before, and it is another one now",
        conflict_hint=f"{advice}; --force overwrites them",
    )


def hand_set(recorded: IntegrationSpec, new: IntegrationSpec) -> tuple[str, ...]:
    """Return ``section.key`` of each recorded value that is not the tool's own and is another one in ``new``."""
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
