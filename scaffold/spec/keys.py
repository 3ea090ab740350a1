"""Which keys a spec may have, and which it must: a key that nothing reads would be a wish that nobody hears."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.spec.defaults import DEFAULTS
from scaffold.spec.knobs import KNOBS
from scaffold.spec.preset import KEYS

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
            if f"{section}.{key}" not in known:
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
