"""JSON from hostile files: duplicate keys, nesting and memory are bounded before or while parsing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError

# Below this size the worst document briefly takes some hundred megabytes of empty lists.
_SMALL_BYTES = 4_000_000
_PIECE_BYTES = 1 << 20


class _Unacceptable(ValueError):
    """Raised inside the parser's callbacks; its text completes ``<file> …``."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Unacceptable(f"has the key {quoted(key)} twice")
            seen.add(key)
    return table


def _unsigned(text: str) -> int:
    if text[0] == "-":
        raise _Unacceptable(f"holds the negative number {quoted(text)}")
    # 2^64 has 20 digits; a longer number only costs time.
    if len(text) > 20:
        raise _Unacceptable(f"holds a number of {len(text)} digits, which does not fit 64 bits")
    return int(text)


def _no_fraction(text: str) -> Any:
    raise _Unacceptable(f"holds {quoted(text)} where only whole numbers stand")


def parse_table(raw: bytes, label: str, *, entries_per_object: int, spare_entries: int) -> dict[str, Any]:
    """Parse a JSON object that holds unsigned integers and text only, as headers and indexes do.

    Args:
        raw: the document, UTF-8.
        label: the file's name for errors.
        entries_per_object: the highest average number of keys per object; for large documents only.
        spare_entries: how many keys there may be beyond that.

    Raises:
        ScaffoldError: not JSON, no object, duplicate keys, nested too deeply, a number out of place, or a document
            whose structure would take far more memory than its size suggests.
    """
    if len(raw) > _SMALL_BYTES:
        _refuse_bomb(raw, label, entries_per_object, spare_entries)
    value = _load(raw, label, parse_int=_unsigned, parse_float=_no_fraction, parse_constant=_no_fraction)
    if not isinstance(value, dict):
        raise ScaffoldError(f"{label} holds no JSON object but {type(value).__name__}")
    return value


def parse_config(raw: bytes, label: str) -> dict[str, Any] | None:
    """Parse a JSON config; None if it is JSON but not an object.

    Raises:
        ScaffoldError: not JSON, duplicate keys or nested too deeply.
    """
    value = _load(raw, label)
    return value if isinstance(value, dict) else None


def _refuse_bomb(raw: bytes, label: str, entries_per_object: int, spare_entries: int) -> None:
    counts = _outside_text(raw, b"{[:,")
    objects = counts[b"{"]
    if (
        counts[b"["] > 2 * objects
        or counts[b":"] > entries_per_object * objects + spare_entries
        or counts[b","] > 80 * objects + spare_entries
        # An object with the keys of a tensor has at least this much punctuation.
        or (objects - 2) * 12 > counts[b""]
    ):
        raise ScaffoldError(f"{label} is not a table of tensors: its JSON is {len(raw)} bytes of other structure")


def _outside_text(raw: bytes, characters: bytes) -> dict[bytes, int]:
    """Return the count of each character outside JSON strings, and under ``b""`` the count of all bytes there.

    The document is processed piece by piece: one of only quotes would otherwise become a hundred million objects.
    """
    unescaped = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    singles = [bytes([character]) for character in characters]
    counts = dict.fromkeys((*singles, b""), 0)
    inside = False
    for start in range(0, len(unescaped), _PIECE_BYTES):
        pieces = unescaped[start : start + _PIECE_BYTES].split(b'"')
        bare = b"".join(pieces[inside::2])
        inside ^= len(pieces) % 2 == 0
        counts[b""] += len(bare)
        for single in singles:
            counts[single] += bare.count(single)
    return counts


def _load(raw: bytes, label: str, **callbacks: Callable[[str], Any]) -> Any:
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, **callbacks)  # type: ignore[arg-type]
    except UnicodeDecodeError as error:
        raise ScaffoldError(f"{label} is not UTF-8 text at byte {error.start} of its JSON") from None
    except json.JSONDecodeError as error:
        raise ScaffoldError(f"{label} is not JSON: {error.msg} at character {error.pos}") from None
    except _Unacceptable as error:
        raise ScaffoldError(f"{label} {error}") from None
    except RecursionError:
        raise ScaffoldError(f"{label} is nested too deeply") from None
    except ValueError:
        raise ScaffoldError(f"{label} holds a number too long to read") from None
