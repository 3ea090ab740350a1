"""Parses untrusted TOML, JSON and YAML as plain data, or raises one error with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from scaffold.limits.bounded import memory

# The integer range of TOML, enough for settings, sizes and tokens.
BITS = 64
NUMBER = f"a whole number that does not fit {BITS} bits"


class MalformedError(ValueError):
    """The text is not a valid document; the message completes ``FILE is not TOML: ``.

    Args:
        reason: what is wrong.
        line: the line; None if unknown, and then the reason has no place either.
    """

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(f"{reason} (at line {line})" if line is not None else reason)
        self.reason, self.line = reason, line or 1


def parse_toml(text: str) -> dict[str, Any]:
    """Return a TOML document.

    Raises:
        MalformedError: says why there is none.
    """
    import tomli  # most documents are JSON, and a compiled parser takes longer to load than to run

    return dict(_parsed(lambda: tomli.loads(text)))


def parse_json(text: str | bytes) -> Any:
    """Return a JSON document.

    Raises:
        MalformedError: says why there is none.
    """
    return _parsed(lambda: json.loads(text))


def parse_yaml(text: str) -> Any:
    """Return a YAML document of plain data.

    Raises:
        MalformedError: says why there is none.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _parsed(lambda: yaml.load(text, Loader=loader))
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        raise MalformedError(str(problem or error), mark.line + 1 if mark else None) from None


def _parsed(parse: Callable[[], Any]) -> Any:
    try:
        document = parse()
    except RecursionError:
        raise MalformedError("it is nested too deeply") from None
    except MemoryError:
        raise MalformedError(f"it is nested too deeply, or too large for {memory()}") from None
    except ValueError as error:
        line, reason = getattr(error, "lineno", None), getattr(error, "msg", str(error))
        # Python's own message for long numbers speaks of Python settings.
        reason = NUMBER if "integer string conversion" in reason else re.sub(r"\s+", " ", reason)
        raise MalformedError(reason, line) from None
    _require_bounded(document)
    return document


def _require_bounded(document: Any) -> None:
    """Refuse large numbers, and documents whose aliases expand beyond what can be traversed."""
    pending, seen = [document], 0
    while pending:
        one = pending.pop()
        seen += 1
        if seen > 5_000_000:
            raise MalformedError("it is too large")
        if isinstance(one, int) and one.bit_length() > BITS:
            raise MalformedError(NUMBER)
        if isinstance(one, dict):
            pending += [*one, *one.values()]
        elif isinstance(one, list | tuple | set):
            pending += one
