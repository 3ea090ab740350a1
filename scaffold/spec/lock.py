"""``scaffold.lock.toml``: what the tool recorded of a package; a person edits ``scaffold.toml`` beside it.

A spec of an older version of the tool is one file; its schema says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from scaffold.files.digest import sha256_hex
from scaffold.files.documents import MalformedError, parse_toml
from scaffold.spec.derived import digest, digests
from scaffold.spec.knobs import is_knob
from scaffold.spec.toml_text import dumps

# The digest that a file carries of itself: whether anybody has edited it since it was written.

_LINE = re.compile(r'^digest = "([0-9a-f]{64})"\n', re.MULTILINE)
_SCHEMA = r"(?m)^schema = \d+\n"


def seal(text: str) -> str:
    """Return the text with the SHA-256 of all its other lines behind the line of the schema."""
    bare = _LINE.sub("", text, count=1)
    schema = re.search(_SCHEMA, bare)
    end = schema.end() if schema else 0
    return f'{bare[:end]}digest = "{sha256_hex(bare)}"\n{bare[end:]}'


def is_sealed(text: str) -> bool:
    """Whether the text is exactly what `seal` returned."""
    found = _LINE.search(text)
    return found is not None and found[1] == sha256_hex(_LINE.sub("", text, count=1))


SPEC_NAME = "scaffold.toml"
LOCK_NAME = "scaffold.lock.toml"
SCHEMA = 2
"""Of the lock; one of schema 1 has every digest, and the origin of each value by its name."""
ONE_FILE = 1
"""Schema of a ``scaffold.toml`` that holds everything."""
TWO_FILES = 2
"""Schema of a ``scaffold.toml`` with a lock beside it."""
RECORDS = ("provenance", "derived", "files")
RENDERED = "rendered"
"""The values of ``scaffold.toml`` that the files were rendered from."""
# Said by the tool and by flags, whether or not a digest tells.
_SAID = ("tool.", "target.", "upstream.checkout_pin")
_HEAD = f"# Written by omni-scaffold, not for editing: a value in {SPEC_NAME} goes before one in here.\n"


def is_locked(name: str, value: Any, derived: Mapping[str, str], *, ported: bool) -> bool:
    """Whether ``section.key`` stands in the lock: no knob, and not a person's own value of a fact.

    Of a spec without digests, which no file has, nothing is a person's.
    """
    if value is None or is_knob(name, ported=ported):
        return value is None
    return not derived or derived.get(name) == digest(value) or (name not in derived and name.startswith(_SAID))


def own_digests(
    derived: Mapping[str, str], locked: Mapping[str, Mapping[str, Any]], own: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Return the digests that the lock keeps: those that do not follow from the values that it holds.

    Args:
        derived: every digest.
        locked: values that stand in the lock.
        own: values of ``scaffold.toml``, which stand in it as rendered; one that is a person's own has an empty digest
            where the tool gave none.
    """
    recorded, rendered = digests(locked), digests(own)
    found = {name: value for name, value in derived.items() if name not in recorded and rendered.get(name) != value}
    found |= dict.fromkeys((name for name in rendered if name not in derived), "")
    return dict(sorted(found.items()))


def by_origin(provenance: Mapping[str, str]) -> dict[str, str | list[str]]:
    """Return origins to the names of the values that they gave, or to the one name."""
    found: dict[str, list[str]] = {}
    for name, origin in sorted(provenance.items()):
        found.setdefault(origin, []).append(name)
    return {origin: names[0] if len(names) == 1 else names for origin, names in sorted(found.items())}


def by_name(origins: Any) -> Any:
    """Return names to origins; what is no table of names is returned as it is, for the reader to refuse."""
    if not isinstance(origins, dict):
        return origins
    pairs = [
        (name, origin) for origin, names in origins.items() for name in (names if isinstance(names, list) else [names])
    ]
    return dict(pairs) if all(isinstance(name, str) for name, _ in pairs) else origins


def write_lock(document: Mapping[str, Any], toml: str) -> str:
    """Return the lock's text.

    Args:
        document: ``package``, ``folders``, ``values`` and ``rendered`` by section, and the tables of ``RECORDS``.
        toml: ``scaffold.toml`` as the tool writes it.
    """
    head = {"schema": SCHEMA, SPEC_NAME: sha256_hex(toml)}
    return seal(_HEAD + dumps({**head, **document}, filled=True))


def is_as_written(text: str, lock: str | None) -> bool:
    """Whether a ``scaffold.toml`` is what the tool wrote: its lock has the digest, or the older file itself."""
    written = parse_toml(lock).get(SPEC_NAME) if lock is not None else None
    return is_sealed(text) or written == sha256_hex(text)


def read_lock(text: str, sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a lock says.

    Args:
        text: the lock.
        sections: of the ``scaffold.toml`` beside it.

    Raises:
        MalformedError: the reason why it cannot be used; the message completes ``FILE ``.
    """
    try:
        document = parse_toml(text)
    except MalformedError as error:
        raise MalformedError(f"is not TOML: {error.reason}", error.line) from None
    if document.get("schema") not in (1, SCHEMA):
        raise MalformedError(f"has schema {document.get('schema')!r}, this version reads {SCHEMA}")
    if not is_sealed(text):
        raise MalformedError("is not as omni-scaffold wrote it: its digest is another one")
    names = sections.get("names")
    package = (names.get("package") if isinstance(names, Mapping) else None) or ""
    if document.get("package") != package:
        raise MalformedError(f"belongs to {document.get('package')!r}, {SPEC_NAME} to {package!r}")
    values = document.setdefault("values", {})
    if not _tables(values):
        raise MalformedError("has no tables of values")
    rendered = document.get(RENDERED)
    if rendered is not None and not _tables(rendered):
        raise MalformedError(f"has no tables in {RENDERED}")
    derived = document.get("derived", {})
    if isinstance(derived, dict):
        followed = digests(rendered) if rendered is not None and document["schema"] > 1 else {}
        merged = {**followed, **digests(values), **derived}
        document["derived"] = {name: value for name, value in merged.items() if value != ""}
    if document["schema"] > 1:
        document["provenance"] = by_name(document.get("provenance", {}))
    return document


def _tables(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(section, dict) for section in value.values())


def rendered_values(text: str) -> dict[str, dict[str, Any]] | None:
    """Return every value of the last rendering by section; None for a lock of an older version, which lacks some."""
    document = parse_toml(text)
    if RENDERED not in document:
        return None
    return with_locked(document[RENDERED], {"values": document.get("values", {})})


def with_locked(sections: Mapping[str, Any], lock: Mapping[str, Any]) -> dict[str, Any]:
    """Return sections with the values of the lock, behind those that ``scaffold.toml`` gives itself."""
    found = dict(sections)
    for name, values in lock["values"].items():
        own = found.get(name, {})
        found[name] = {**values, **own} if isinstance(own, Mapping) else own
    return found
