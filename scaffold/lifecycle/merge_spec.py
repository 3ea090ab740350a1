"""Three specs become one: what the tool made of the old version, of the new one, and what is in ``scaffold.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaffold.spec import IntegrationSpec

# The tool and the target say these themselves; a recorded value is never a person's wish.
TAKEN = ("tool.", "target.", "upstream.version")
_ABSENT = object()


@dataclass(frozen=True)
class SpecConflict:
    """A value that a person changed and that changed upstream too."""

    key: str
    mine: Any
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.key} (here {_shown(self.mine)}, upstream from {_shown(self.old)} to {_shown(self.new)})"


@dataclass(frozen=True)
class MergedSpec:
    """The merged spec; a value in conflict is the person's."""

    spec: IntegrationSpec
    conflicts: tuple[SpecConflict, ...]


def merge_specs(recorded: IntegrationSpec, old: IntegrationSpec, new: IntegrationSpec) -> MergedSpec:
    """Carry the difference of ``old`` and ``new`` over to ``recorded``, value by value.

    Provenance and fingerprints are those of ``new`` wherever its value is taken or the same.
    """
    sections: dict[str, dict[str, Any]] = {}
    provenance: dict[str, str] = {}
    conflicts = []
    for section, key in _keys(recorded, new):
        name = f"{section}.{key}"
        mine, before, after = (_value(spec, section, key) for spec in (recorded, old, new))
        taken = after
        if mine is not _ABSENT and not name.startswith(TAKEN) and not _same(mine, before):
            taken = mine
            if not _same(before, after) and not _same(mine, after):
                conflicts.append(SpecConflict(name, mine, _plain(before), _plain(after)))
        if taken is _ABSENT:
            continue  # the value is no longer part of a spec
        sections.setdefault(section, {})[key] = taken
        origin = _origin(name, recorded, old, new, changed=not _same(taken, mine))
        if origin is not None:
            provenance[name] = origin
    merged = replace(
        recorded, sections=sections, provenance=provenance, fingerprints=dict(new.fingerprints), files={}, folders=()
    )
    return MergedSpec(merged, tuple(conflicts))


def _origin(
    name: str, recorded: IntegrationSpec, old: IntegrationSpec, new: IntegrationSpec, *, changed: bool
) -> str | None:
    """Return where a value comes from: what is cited of the old version is cited of the new one."""
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
    return bool(_comparable(first) == _comparable(second))


def _comparable(value: Any) -> Any:
    """TOML knows neither None nor tuples; what is written and read back must compare equal."""
    if isinstance(value, Mapping):
        return {key: _comparable(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [_comparable(entry) for entry in value]
    return None if value is _ABSENT else (type(value).__name__, value) if isinstance(value, bool) else value


def _plain(value: Any) -> Any:
    return None if value is _ABSENT else value


def _shown(value: Any) -> str:
    text = "nothing" if value is None or value is _ABSENT else repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
