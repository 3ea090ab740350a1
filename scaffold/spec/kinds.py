"""What kind of value a key of a spec holds, where something is worked out from it before any template sees it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.version_text import is_version

SHOWN = 60


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _version(value: Any) -> bool:
    # Without a number, a folder is recorded by its name, which nothing looks up.
    return isinstance(value, str) and (is_version(value) or value.startswith("from "))


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def _table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _list_of(kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(kind, value))


KINDS: Mapping[str, Callable[[Any], bool]] = {
    "text": _text,
    "true or false": _flag,
    "a whole number": _whole,
    "a number": _number,
    "a table": _table,
    "a version": _version,
    "a list of text": _list_of(_text),
    "a list of whole numbers": _list_of(_whole),
    "a list of tables": _list_of(_table),
}
# The first pattern that a key fits decides; keys without one are judged where they are used.
PATTERNS: Mapping[str, str] = {
    "target.*_hook": "true or false",
    "target.use_v1": "true or false",
    "target.lora_merge": "true or false",
    "target.logprob_difference": "true or false",
    "target.*": "text",
    "names.*": "text",
    "tokens.*": "a table",
    "upstream.step_arguments": "a list of text",
    "upstream.version": "a version",
    "upstream.checkout_pin": "text",
    "upstream.module": "text",
    "upstream.class": "text",
    "upstream.registry_key": "text",
    "architecture.sequence": "a list of text",
    "architecture.timestep_order": "a list of text",
    "cfg.defaults": "a table",
    "guidance.defaults": "a table",
    "checkpoint.*_config": "a list of tables",
    "checkpoint.bytes": "a whole number",
    "lora.linears": "a list of text",
    "lora.routers": "a list of text",
    "recipe.offload": "true or false",
    "recipe.algorithms": "a list of text",
    "docs.*": "text",
}


def require_kinds(sections: Mapping[str, Mapping[str, Any]], source: str) -> None:
    """Check every value that has a kind; None, which stands for what is not established, fits all.

    Raises:
        ScaffoldError: names the first key whose value is of another kind.
    """
    for section, values in sections.items():
        for key, value in values.items():
            wanted = _kind_of(section, key)
            if value is not None and wanted is not None and not KINDS[wanted](value):
                shown = repr(value)
                shown = shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"
                raise ScaffoldError(f"{source}: {section}.{key} is {shown}", hint=f"it must be {wanted}")


@functools.lru_cache(maxsize=1024)
def _kind_of(section: str, key: str) -> str | None:
    if section == "recipe" and key not in ("offload", "algorithms"):
        from scaffold.spec.sections.recipe import DEFAULTS

        return _kind_like(DEFAULTS[key]) if key in DEFAULTS else None
    name = f"{section}.{key}"
    return next((kind for pattern, kind in PATTERNS.items() if fnmatchcase(name, pattern)), None)


def _kind_like(example: Any) -> str:
    """The narrowest kind that an example is of; a number with a fraction may be given without one."""
    kinds = ("text", "true or false", "a whole number", "a number", "a list of whole numbers")
    return next(kind for kind in kinds if KINDS[kind](example))
