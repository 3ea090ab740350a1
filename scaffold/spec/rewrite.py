"""``scaffold.toml`` written over the text that a person edited: comments, order and formatting stay."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from difflib import SequenceMatcher
from typing import Any

import tomli

from scaffold.spec.derived import comparable
from scaffold.spec.knobs_text import comments
from scaffold.spec.model import IntegrationSpec
from scaffold.spec.toml_text import dumps


def rewrite(text: str, spec: IntegrationSpec, before: IntegrationSpec) -> str | None:
    """Return ``text`` with the values of ``spec``.

    A text without anything of a person's but values is what `IntegrationSpec.to_toml` writes. Another one keeps what
    is its own, and gets the tool's comments of now in place of its former ones. None where that failed.

    Args:
        text: TOML.
        spec: what the result says.
        before: what the text says.
    """
    from tomlkit import TOMLDocument, parse
    from tomlkit.exceptions import TOMLKitError

    canonical = spec.to_toml()
    if text == before.to_toml() or is_plain(text):
        return canonical
    try:
        document: TOMLDocument = parse(text)
        _merge_table(document, _loads(canonical))
        written = _commented(document.as_string(), comments(before), comments(spec))
        return written if comparable(_loads(written)) == comparable(_loads(canonical)) else None
    except (TOMLKitError, LookupError, TypeError, ValueError, AttributeError):
        return None  # tables in an order, or a nesting, that the library does not edit


def _commented(text: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Replace comments of the tool that say something else by now."""
    for name, comment in before.items():
        if comment and now.get(name, comment) != comment:
            text = text.replace(f"# {comment}\n", f"# {now[name]}\n" if now[name] else "\n", 1)
    return text


def is_plain(text: str) -> bool:
    """Whether a text has no comments and no formatting of its own, as this version or an older one writes it."""
    import tomli_w

    document = _loads(text)
    return text in (dumps(document), tomli_w.dumps(document, multiline_strings=False))


def _merge_table(there: MutableMapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for key in [key for key in there if key not in wanted]:
        del there[key]
    for key, value in wanted.items():
        if key not in there:
            there[key] = _item(value)
        elif comparable(_plain(there[key])) != comparable(value):
            _merge(there, key, value)


def _merge(there: Any, key: Any, value: Any) -> None:
    """Change one entry of a table or a list, inside where both are of one kind."""
    mine = there[key]
    if isinstance(mine, MutableMapping) and isinstance(value, Mapping):
        _merge_table(mine, value)
    elif isinstance(mine, list) and isinstance(value, list) and mine:
        _merge_list(mine, value)
    else:
        there[key] = _item(value)


def _merge_list(mine: list[Any], wanted: list[Any]) -> None:
    """Delete, insert and change entries from the end, so that the comments beside the others keep their places."""
    before, after = [repr(comparable(_plain(entry))) for entry in mine], [repr(comparable(entry)) for entry in wanted]
    steps = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    for kind, start, end, first, last in reversed(steps):
        if kind == "equal":
            continue
        shared = min(end - start, last - first)
        for index in reversed(range(start + shared, end)):
            del mine[index]
        for index in range(first + shared, last):
            mine.insert(start + index - first, _entry(mine, wanted[index]))
        for index in range(shared):
            _merge(mine, start + index, wanted[first + index])


def _entry(mine: list[Any], value: Any) -> Any:
    """Return a new entry of a list: between square brackets a table stands in braces."""
    from tomlkit import inline_table
    from tomlkit.items import Array

    if not isinstance(mine, Array) or not isinstance(value, Mapping):
        return _item(value)
    table = inline_table()
    table.update(value)
    return table


def _plain(value: Any) -> Any:
    return value.unwrap() if hasattr(value, "unwrap") else value


def _item(value: Any) -> Any:
    """Return a new entry as the tool writes it."""
    from tomlkit import parse

    return parse(dumps({"x": value}))["x"]


def _loads(text: str) -> Any:
    return tomli.loads(text)
