"""Three-way merge of specs: the tool's for the old version, its for the new one, and ``scaffold.toml``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scaffold.spec.derived import comparable, digest
from scaffold.spec.sections.package import CLOCK

if TYPE_CHECKING:
    from scaffold.spec import IntegrationSpec

# The tool and the target set these; a recorded value is never a person's edit.
TAKEN = ("tool.", "target.", "upstream.version")
# Origins of values that can be made again without the checkpoint.
REPRODUCED = ("fact ", "facts ", "preset ", "default of ", "contract profile ", "schedule.steps less")
# Origins of values that stay as they are.
OWN = ("flag ", CLOCK)
_ABSENT = object()


@dataclass(frozen=True)
class SpecConflict:
    """A value that both a person and the new version changed.

    Attributes:
        key: ``section.key``.
        mine: the person's value.
        old: the value this version of the tool makes from the old vllm-omni.
        new: its value for the new vllm-omni; if equal to ``old``, the tool itself changed.
    """

    key: str
    mine: Any
    old: Any
    new: Any

    def __str__(self) -> str:
        if _same(self.old, self.new):
            return f"{self.key} (here {_shown(self.mine)}, in this version of omni-scaffold {_shown(self.new)})"
        return f"{self.key} (here {_shown(self.mine)}, upstream from {_shown(self.old)} to {_shown(self.new)})"


@dataclass(frozen=True)
class MergedSpec:
    """The merged spec; a value in conflict is the person's.

    Attributes:
        spec: the merged spec.
        conflicts: values changed both by a person and by the tool or upstream.
        followed: ``section.key`` of unedited values that a newer tool or preset sets differently.
    """

    spec: IntegrationSpec
    conflicts: tuple[SpecConflict, ...]
    followed: tuple[str, ...] = ()


def merge_specs(
    recorded: IntegrationSpec, old: IntegrationSpec, new: IntegrationSpec, *, upstream_only: bool = False
) -> MergedSpec:
    """Apply to ``recorded`` the changes since it was rendered, value by value.

    A person's edits are recognized by the recorded digests of the tool's values. A spec without digests is compared
    with ``old``; then a newer preset cannot be told from an edit, and the value stays. Provenance is taken from ``new``
    if its value is taken or equal.

    Args:
        recorded: what is in ``scaffold.toml``.
        old: the spec this version of the tool makes from the vllm-omni it was rendered from.
        new: the spec it makes from the vllm-omni to update to.
        upstream_only: apply only the differences between ``old`` and ``new``, not the tool's own changes.
    """
    sections: dict[str, dict[str, Any]] = {}
    provenance: dict[str, str] = {}
    derived: dict[str, str] = {}
    conflicts, followed = [], []
    known = bool(recorded.derived) and not upstream_only
    for section, key in _keys(recorded, new):
        name = f"{section}.{key}"
        mine, before, after = (_value(spec, section, key) for spec in (recorded, old, new))
        again = known and _reproduced(recorded, name)
        edited = _digest(mine) != recorded.derived.get(name) if again else not _same(mine, before)
        moved = _digest(after) != recorded.derived.get(name) if again else not _same(before, after)
        taken = after
        if mine is not _ABSENT and not name.startswith(TAKEN) and edited:
            taken = mine
            if moved and not _same(mine, after):
                conflicts.append(SpecConflict(name, mine, _plain(before), _plain(after)))
        elif again and _same(before, after) and not _same(mine, after) and not name.startswith(TAKEN):
            followed.append(name)
        origin = _digest(after) if again or moved or not recorded.derived else recorded.derived.get(name)
        if origin is not None:
            derived[name] = origin
        if taken is _ABSENT:
            continue  # the value is no longer part of a spec
        sections.setdefault(section, {})[key] = taken
        cited = _origin(name, recorded, old, new, changed=not _same(taken, mine))
        if cited is not None:
            provenance[name] = cited
    merged = replace(
        recorded,
        sections=sections,
        provenance=provenance,
        derived=derived,
        files={},
        folders=(),
        overrides=new.overrides,
    )
    return MergedSpec(merged, tuple(conflicts), tuple(followed))


def _reproduced(recorded: IntegrationSpec, name: str) -> bool:
    """Whether the tool can make the value again from the spec alone.

    A value from a packaged manifest can be made again; a value without an origin is new.
    """
    origin = recorded.provenance.get(name)
    packaged = recorded.provenance.get("architecture.hidden_size", "").startswith("manifest ")
    return origin is None or origin.startswith(REPRODUCED) or (packaged and not origin.startswith(OWN))


def _digest(value: Any) -> str | None:
    return None if value is _ABSENT or value is None else digest(value)


def _origin(
    name: str, recorded: IntegrationSpec, old: IntegrationSpec, new: IntegrationSpec, *, changed: bool
) -> str | None:
    """Return the origin of a value, with citations of the old version replaced by those of the new one."""
    before, now = recorded.provenance.get(name), new.provenance.get(name)
    if now is not None and (changed or before is None or before == old.provenance.get(name) or now.startswith("fact")):
        return now
    return before


def changed_keys(before: IntegrationSpec, after: IntegrationSpec) -> tuple[str, ...]:
    """Return the ``section.key`` of each value that differs."""
    names = [
        f"{section}.{key}"
        for section, key in _keys(before, after)
        if not _same(_value(before, section, key), _value(after, section, key))
    ]
    return tuple(names)


def _keys(*specs: IntegrationSpec) -> list[tuple[str, str]]:
    found = [(section, key) for spec in specs for section, values in spec.sections.items() for key in values]
    return list(dict.fromkeys(found))


def _value(spec: IntegrationSpec, section: str, key: str) -> Any:
    return spec.sections.get(section, {}).get(key, _ABSENT)


def _same(first: Any, second: Any) -> bool:
    return bool(comparable(_plain(first)) == comparable(_plain(second)))


def _plain(value: Any) -> Any:
    return None if value is _ABSENT else value


def _shown(value: Any) -> str:
    text = "nothing" if value is None or value is _ABSENT else repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
