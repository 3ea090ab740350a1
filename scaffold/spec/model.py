"""The spec as data, and as the ``scaffold.toml`` that is kept in the rendered package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scaffold.documents import MalformedError, parse_toml
from scaffold.errors import ScaffoldError
from scaffold.spec.defaults import completed
from scaffold.spec.kinds import require_kinds

SCHEMA = 1
_BOOKKEEPING = ("schema", "digest", "not_established", "folders", "provenance", "fingerprints", "derived", "files")


@dataclass(frozen=True)
class IntegrationSpec:
    """Sections of plain values, with the provenance of each.

    Attributes:
        sections: section name to values; None stands for what could not be established.
        provenance: ``section.key`` to the fact, preset or flag that gave the value.
        fingerprints: fact name to a digest of its value, so that a later version can be compared.
        derived: ``section.key`` to a digest of the value that the tool gave; another value is a person's.
        files: rendered path to the SHA-256 of its content.
        folders: folders that were made in the checkout for the files, so that `remove` takes no others away.
    """

    sections: Mapping[str, Mapping[str, Any]]
    provenance: Mapping[str, str] = field(default_factory=dict)
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    derived: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()

    def context(self) -> dict[str, Any]:
        """Return the variables of the templates: one mapping a section."""
        context: dict[str, Any] = completed(self.sections)
        token: dict[str, Any] = {"text": None, "id": None, "config_key": None}
        context["tokens"] = {name: {**token, **entry} for name, entry in context.get("tokens", {}).items()}
        return context

    def value(self, path: str) -> Any:
        """Return ``section.key``; None where it is absent."""
        section, _, key = path.partition(".")
        return self.sections.get(section, {}).get(key)

    def to_toml(self) -> str:
        """Serialise deterministically; TOML has no None, so the keys that have no value are listed."""
        import tomli_w

        document: dict[str, Any] = {"schema": SCHEMA}
        document["not_established"] = sorted(
            f"{name}.{key}" for name, values in self.sections.items() for key, value in values.items() if value is None
        )
        if self.folders:
            document["folders"] = sorted(self.folders)
        document |= {name: _without_none(values) for name, values in self.sections.items()}
        document["provenance"] = dict(sorted(self.provenance.items()))
        document["fingerprints"] = dict(sorted(self.fingerprints.items()))
        if self.derived:
            document["derived"] = dict(sorted(self.derived.items()))
        if self.files:
            document["files"] = dict(sorted(self.files.items()))
        return tomli_w.dumps(document, multiline_strings=False)

    @classmethod
    def from_toml(cls, text: str, source: str = "scaffold.toml") -> IntegrationSpec:
        """Read what :meth:`to_toml` wrote, or a person edited.

        Raises:
            ScaffoldError: not TOML, another schema, or a value of another kind.
        """
        try:
            document = parse_toml(text)
        except MalformedError as error:
            raise ScaffoldError(f"{source} is not TOML: {error}") from None
        if document.get("schema") != SCHEMA:
            problem = f"{source} has schema {document.get('schema')!r}, this version reads {SCHEMA}"
            raise ScaffoldError(problem, hint="use the version of omni-scaffold that wrote it")
        sections: dict[str, dict[str, Any]] = {}
        for name, values in document.items():
            if name not in _BOOKKEEPING:
                if not isinstance(values, dict):
                    raise ScaffoldError(f"{source}: {name} is no table")
                sections[name] = values
        for path in _names(document, "not_established", source):
            section, _, key = path.partition(".")
            sections.setdefault(section, {}).setdefault(key, None)
        require_kinds(sections, source)
        return cls(
            sections,
            _strings(document, "provenance", source),
            _strings(document, "fingerprints", source),
            _strings(document, "derived", source),
            _strings(document, "files", source),
            _names(document, "folders", source),
        )


def _names(document: Mapping[str, Any], name: str, source: str) -> tuple[str, ...]:
    values = document.get(name, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ScaffoldError(f"{source}: {name} is no list of strings")
    return tuple(values)


def _strings(document: Mapping[str, Any], name: str, source: str) -> dict[str, str]:
    values = document.get(name, {})
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise ScaffoldError(f"{source}: {name} is no table of strings")
    return values


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        if None in value:
            raise ValueError("a list of the spec holds None, which TOML cannot say")
        return [_without_none(entry) for entry in value]
    return value
