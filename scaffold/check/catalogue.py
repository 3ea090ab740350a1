"""All rules, found by walking ``rules/``."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from scaffold.check.rule import Rule
from scaffold.errors import ScaffoldError
from scaffold.files.documents import parse_toml
from scaffold.files.reading import read_text


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Return every rule, by identifier."""
    files = (file for file in Path(__file__).with_name("rules").iterdir() if file.suffix == ".py")
    names = [file.stem for file in files if file.stem.startswith("osc")]
    found = [Rule.of(importlib.import_module(f"scaffold.check.rules.{name}")) for name in names]
    return tuple(sorted(found, key=lambda rule: rule.id))


@lru_cache(maxsize=1)
def removed_rules() -> dict[str, str]:
    """Return the identifiers of removed rules, each with what replaces it."""
    text = read_text(Path(__file__).with_name("removed.toml"))
    return {str(name): str(instead) for name, instead in parse_toml(text).items()}


def removed(name: str) -> str | None:
    """Return the message for a removed rule, None for any other name: ``removed: contract `forward` …``."""
    instead = removed_rules().get(name.upper())
    return None if instead is None else f"{name.upper()} was removed: {instead}"


def find_rule(name: str) -> Rule:
    """Return the rule of an identifier or a name.

    Raises:
        ScaffoldError: there is none, or it was removed.
    """
    for rule in all_rules():
        if _is_exact(name, rule):
            return rule
    if (gone := removed(name)) is not None:
        raise ScaffoldError(gone)
    raise ScaffoldError(f"there is no rule {name!r}", hint="omni-scaffold check --list-rules shows them")


def require_known(selector: str, where: str | None = None) -> None:
    """Raise an error for a selector that matches no rule.

    Args:
        selector: an identifier, a name, or a prefix like ``OSC2``.
        where: where it was found, for the message.

    Raises:
        ScaffoldError: it matches none.
    """
    if (gone := removed(selector)) is not None:
        raise ScaffoldError(f"{where + ': ' if where else ''}{gone}", hint="leave it out")
    if not any(fits(selector, rule) for rule in all_rules()):
        hint = "use an identifier, a name or a prefix like OSC2; omni-scaffold check --list-rules shows them"
        raise ScaffoldError(f"{where + ': ' if where else ''}no rule fits {selector!r}", hint=hint)


def chosen(select: Sequence[str], ignore: Sequence[str]) -> tuple[Rule, ...]:
    """Return the selected rules; selectors are identifiers, names, or prefixes like ``OSC2``, and the most exact wins.

    Raises:
        ScaffoldError: a selector matches no rule.
    """
    for selector in (*select, *ignore):
        require_known(selector)
    return tuple(rule for rule in all_rules() if _exactness(select or ("OSC",), rule) > _exactness(ignore, rule))


def fits(selector: str, rule: Rule) -> bool:
    """Whether a selector names a rule: its identifier, its name, or a prefix of the identifier."""
    prefix = selector.upper()
    return _is_exact(selector, rule) or (prefix.startswith("OSC") and rule.id.startswith(prefix))


def _exactness(selectors: Iterable[str], rule: Rule) -> int:
    """Return how exactly the best selector matches a rule, 0 where none does."""
    return max((len(rule.id) if _is_exact(s, rule) else len(s) for s in selectors if fits(s, rule)), default=0)


def _is_exact(selector: str, rule: Rule) -> bool:
    return selector.lower() == rule.name or selector.upper() == rule.id
