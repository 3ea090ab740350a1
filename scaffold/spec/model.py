"""The spec as data, and as the ``scaffold.toml`` and ``scaffold.lock.toml`` that are kept in the rendered package."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.files.documents import MalformedError, parse_toml
from scaffold.spec.defaults import DEFAULTS, PORT, completed
from scaffold.spec.derived import digest
from scaffold.spec.kinds import require_kinds
from scaffold.spec.knobs import KNOBS
from scaffold.spec.knobs_text import knobs_text
from scaffold.spec.lock import (
    LOCK_NAME,
    ONE_FILE,
    RECORDS,
    RENDERED,
    SPEC_NAME,
    TWO_FILES,
    by_origin,
    is_locked,
    own_digests,
    read_lock,
    with_locked,
    write_lock,
)
from scaffold.spec.preset import KEYS

# Which keys a spec may have, and which it must: a key that nothing reads would be a wish that nobody hears.

# Values that a spec has only where they are wanted, beside those of `DEFAULTS`, of the knobs and of presets.
OPTIONAL = (
    "cfg.parameters",
    "deploy.installs",
    "deploy.prepare",
    "grade.needs",
    "grade.reason",
    "grade.refuses",
    "recipe.framed",
    "recipe.sized",
    "schedule.solver",
    "upstream.checkout_pin",
)

# Values that templates rest on, whatever has been written in the package since, and what to do instead.
FIXED = {
    "grade.missing": "leave it out: what is left to write is what the package's files say, and"
    " `omni-scaffold check PACKAGE --select OSC140` lists it",
}


def require_keys(own: Mapping[str, Any], recorded: Collection[str], source: str) -> None:
    """Check that every key of ``scaffold.toml`` is one that the tool reads.

    Args:
        own: its sections.
        recorded: ``section.key`` of what the lock knows of.
        source: what errors call the file.

    Raises:
        ScaffoldError: names the first that is none, and the nearest that there is.
    """
    known, free = _known(recorded)
    names = {name.partition(".")[0] for name in known} | free
    for section, values in own.items():
        if section not in names:
            raise ScaffoldError(f"{source}: no section is called [{section}]", hint=_near(section, names))
        if section in free:
            continue
        for key in values if isinstance(values, Mapping) else ():
            if (name := f"{section}.{key}") in FIXED:
                raise ScaffoldError(f"{source}: {name} is not to be changed", hint=FIXED[name])
            if name not in known:
                keys = [name.partition(".")[2] for name in known if name.startswith(f"{section}.")]
                raise ScaffoldError(f"{source}: [{section}] has no key {key!r}", hint=_near(key, keys))


def require_there(sections: Mapping[str, Any], derived: Mapping[str, str], source: str, lock: str) -> None:
    """Check that nothing which the tool wrote is gone: a template would stop at it, or leave something out.

    Raises:
        ScaffoldError: names the first that is missing, and the file that it belongs to.
    """
    for name in derived:
        section, _, key = name.partition(".")
        if key not in sections.get(section, {}):
            where = source if name in KNOBS else lock
            raise ScaffoldError(f"{where}: {name} is missing", hint=f"write {key} = … in [{section}] of {source} again")


def _known(recorded: Collection[str]) -> tuple[set[str], set[str]]:
    """Every ``section.key`` that may stand there, and the sections whose keys are free."""
    known = {*recorded, *KNOBS, *OPTIONAL}
    known |= {f"{section}.{key}" for section, keys in DEFAULTS.items() for key in keys}
    known |= {f"{section}.{key}" for section, keys in KEYS.items() if not isinstance(keys, str) for key in keys}
    return known, {section for section, keys in KEYS.items() if isinstance(keys, str)}


def _near(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, sorted(known), 1)
    return f"did you mean {close[0]}?" if close else f"it may be {', '.join(sorted(known))}"


# Settings of guidance were lists of tables with name and default; now they are one table.
_SETTINGS = (("cfg", "parameters"), ("guidance", "defaults"))


def with_settings(
    sections: Mapping[str, Any], derived: Mapping[str, str]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return sections and digests in which settings of guidance are tables by name."""
    found, told = {name: dict(values) for name, values in sections.items()}, dict(derived)
    for section, key in _SETTINGS:
        entries = found.get(section, {}).get(key)
        if isinstance(entries, list) and all(isinstance(e, Mapping) and {"name", "default"} <= set(e) for e in entries):
            del found[section][key]
            found[section]["defaults"] = {str(entry["name"]): entry["default"] for entry in entries}
            was = told.pop(f"{section}.{key}", None)
            if was == digest(entries):
                told[f"{section}.defaults"] = digest(found[section]["defaults"])
            elif was is not None:
                told[f"{section}.defaults"] = was
    return found, told


RESTORE = "restore it with git, or write it again with `new --force`"
_BOOKKEEPING = ("schema", "digest", "not_established", "folders", "overrides", *RECORDS)


@dataclass(frozen=True)
class IntegrationSpec:
    """Sections of plain values, with the provenance of each.

    Attributes:
        sections: section name to values; None stands for what could not be established.
        provenance: ``section.key`` to the fact, preset or flag that gave the value.
        derived: ``section.key`` to a digest of the value that the tool gave; another value is a person's.
        files: rendered path to the SHA-256 of its content.
        folders: folders that were made in the checkout for the files, so that `remove` takes no others away.
        overrides: presets of a team that it was rendered with, to where each stood and its SHA-256.
    """

    sections: Mapping[str, Mapping[str, Any]]
    provenance: Mapping[str, str] = field(default_factory=dict)
    derived: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)

    def context(self) -> dict[str, Any]:
        """Return the variables of the templates: one mapping a section."""
        context: dict[str, Any] = completed(self.sections)
        token: dict[str, Any] = {"text": None, "id": None, "config_key": None}
        context["tokens"] = {name: {**token, **entry} for name, entry in context.get("tokens", {}).items()}
        for section, key in (("cfg", "parameters"), ("guidance", "defaults")):
            settings = context.get(section, {}).get("defaults")
            if settings is not None:
                context[section][key] = [{"name": name, "default": value} for name, value in settings.items()]
        return context

    @property
    def ported(self) -> bool:
        """Whether the denoiser of the package is ported from vllm-omni."""
        return PORT in self.sections

    def value(self, path: str) -> Any:
        """Return ``section.key``; None where it is absent."""
        section, _, key = path.partition(".")
        return self.sections.get(section, {}).get(key)

    def to_toml(self) -> str:
        """Return the part for a person, deterministic, with what each knob does beside it."""
        return knobs_text(self, self._parts()[0])

    def to_lock(self) -> str:
        """Return the rest, deterministic."""
        return self.to_files()[1]

    def to_files(self) -> tuple[str, str]:
        """Return both parts."""
        own, locked = self._parts()
        toml = knobs_text(self, own)
        return toml, self._lock(own, locked, toml)

    def _lock(self, own: dict[str, Any], locked: dict[str, Any], toml: str) -> str:
        unknown = (
            f"{n}.{key}" for n, values in self.sections.items() for key, value in values.items() if value is None
        )
        document: dict[str, Any] = {"package": self.value("names.package") or "", "folders": sorted(self.folders)}
        document["not_established"] = sorted(unknown)
        document["values"] = locked
        document[RENDERED] = {name: dict(sorted(values.items())) for name, values in sorted(own.items())}
        for name in RECORDS:
            document[name] = dict(sorted(getattr(self, name).items()))
        document["provenance"] = by_origin(self.provenance)
        document["derived"] = own_digests(self.derived, locked, own)
        if self.overrides:
            document["overrides"] = dict(sorted(self.overrides.items()))
        return write_lock(document, toml)

    def as_written(self) -> IntegrationSpec:
        """Return the spec as its files have it: reading it back fixes the order of keys."""
        toml, lock = self.to_files()
        return self.from_toml(toml, lock=lock)

    def _parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the sections of the part for a person, and those of the lock."""
        parts: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        for name, values in self.sections.items():
            if not values:
                parts[1][name] = {}
            for key, value in values.items():
                locked = is_locked(f"{name}.{key}", value, self.derived, ported=self.ported)
                part = parts[locked].setdefault(name, {})
                if value is not None:
                    part[key] = _without_none(value)
        return parts[0], {name: dict(sorted(values.items())) for name, values in sorted(parts[1].items())}

    @classmethod
    def from_toml(cls, text: str, source: str = SPEC_NAME, *, lock: str | None = None) -> IntegrationSpec:
        """Read what :meth:`to_toml` and :meth:`to_lock` wrote, or a person edited.

        Args:
            text: ``scaffold.toml``.
            source: what errors call it.
            lock: ``scaffold.lock.toml``; an older ``scaffold.toml`` has none.

        Raises:
            ScaffoldError: not TOML, another schema, a value of another kind, or no lock that belongs to it.
        """
        try:
            document = parse_toml(text)
        except MalformedError as error:
            raise ScaffoldError(f"{source} is not TOML: {error}") from None
        if document.get("schema") not in (TWO_FILES, ONE_FILE):
            problem = f"{source} has schema {document.get('schema')!r}, this version reads {TWO_FILES}"
            raise ScaffoldError(problem, hint="use the version of omni-scaffold that wrote it")
        sections: dict[str, dict[str, Any]] = {}
        for name, values in document.items():
            if name not in _BOOKKEEPING:
                if not isinstance(values, dict):
                    raise ScaffoldError(f"{source}: {name} is not a table")
                sections[name] = values
        records, recorder = document, source
        if document["schema"] != ONE_FILE:
            recorder = f"{source.removesuffix(source.rpartition('/')[2])}{LOCK_NAME}"
            if lock is None:
                raise ScaffoldError(f"{source} has no {LOCK_NAME} beside it, the other half of the spec", hint=RESTORE)
            try:
                records = read_lock(lock, sections)
            except MalformedError as error:
                raise ScaffoldError(f"{recorder} {error}", hint=RESTORE) from None
            own, sections = sections, with_locked(sections, records)
            unset = {*_names(document, "not_established", source), *_names(records, "not_established", recorder)}
            require_keys(own, {*unset, *_strings(records, "derived", recorder)}, source)
        else:
            unset = set(_names(document, "not_established", source))
        for path in sorted(unset):
            section, _, key = path.partition(".")
            sections.setdefault(section, {}).setdefault(key, None)
        tables = {name: _strings(records, name, recorder) for name in RECORDS}
        sections, tables["derived"] = with_settings(sections, tables["derived"])
        require_there(sections, tables["derived"], source, recorder)
        require_kinds(sections, source)
        overrides = _strings(records, "overrides", recorder)
        return cls(sections, **tables, folders=_names(records, "folders", recorder), overrides=overrides)


def _names(document: Mapping[str, Any], name: str, source: str) -> tuple[str, ...]:
    values = document.get(name, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ScaffoldError(f"{source}: {name} is not a list of strings")
    return tuple(values)


def _strings(document: Mapping[str, Any], name: str, source: str) -> dict[str, str]:
    values = document.get(name, {})
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise ScaffoldError(f"{source}: {name} is not a table of strings")
    return values


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        if None in value:
            raise ValueError("a list of the spec holds None, which TOML cannot say")
        return [_without_none(entry) for entry in value]
    return value
