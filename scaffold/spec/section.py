"""Collecting the values of one section together with their provenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scaffold.errors import RefusedError
from scaffold.spec.preset import Preset

if TYPE_CHECKING:
    from scaffold.checkpoint import CheckpointHeaders
    from scaffold.inspect.report import Report
    from scaffold.render.names import Names
    from scaffold.target import ContractProfile


@dataclass(frozen=True)
class Sources:
    """Everything a section may draw on."""

    report: Report
    headers: CheckpointHeaders
    headers_origin: str
    configs: Mapping[str, Any]
    preset: Preset
    profile: ContractProfile
    names: Names
    date: str | None
    real_checkpoint: bool


@dataclass
class Section:
    """Values of one section; later sections may read earlier ones through ``before``."""

    name: str
    sources: Sources
    before: Mapping[str, Mapping[str, Any]]
    values: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)
    lacking: list[RefusedError] = field(default_factory=list)

    def lacks(self, problem: str, hint: str | None = None) -> None:
        """Note what a composed package cannot do without; in a ported one a person writes it."""
        self.lacking.append(RefusedError(problem, hint=hint))

    def put(self, key: str, value: Any, origin: str) -> Any:
        """Set a value that was worked out, saying from what; returns it."""
        self.values[key] = value
        if value is not None:
            self.provenance[f"{self.name}.{key}"] = origin
        return value

    def fact(self, key: str, name: str, convert: Callable[[Any], Any] | None = None) -> Any:
        """Set a value from a fact; unknown facts give None. Returns the value."""
        value, origin = self.known(name)
        if value is not None and convert is not None:
            value = convert(value)
        return self.put(key, value, origin)

    def known(self, name: str) -> tuple[Any, str]:
        """Return a fact's value and how to cite it."""
        found = self.sources.report.facts.get(name)
        if found is None or found.confidence == "unknown":
            return None, f"fact {name}, unknown"
        place = f", {found.evidence[0].file}:{found.evidence[0].line}" if found.evidence else ""
        return found.value, f"fact {name}{place}"

    def says(self, name: str, value: Any) -> bool:
        """Whether a fact is known to be a value; no fingerprint is kept: a fact that says otherwise was not used."""
        found = self.sources.report.facts.get(name)
        return found is not None and found.confidence != "unknown" and bool(found.value == value)

    def known_fact(self, key: str, name: str) -> Any:
        """Set a value from a fact where it is known, and leave the key out where it is not."""
        found = self.sources.report.facts.get(name)
        unknown = found is None or found.confidence == "unknown"
        return None if unknown else self.fact(key, name)

    def preset(self, key: str, default: Any = None) -> Any:
        """Set a value from the preset, else the default of this tool; returns it."""
        value = self.sources.preset.value(self.name, key)
        if value is not None:
            return self.put(key, value, f"preset {self.sources.preset.name}")
        return self.put(key, default, "default of omni-scaffold")

    def preset_or_fact(self, key: str, name: str, convert: Callable[[Any], Any] | None = None) -> Any:
        """Set a value from the preset where it speaks, else from a fact; returns it."""
        if self.sources.preset.value(self.name, key) is not None:
            return self.preset(key)
        return self.fact(key, name, convert)

    def fact_or_preset(self, key: str, name: str, convert: Callable[[Any], Any] | None = None) -> Any:
        """Set a value from a fact where it is known, else from the preset; returns it."""
        value = self.fact(key, name, convert)
        return value if value is not None else self.preset(key)
