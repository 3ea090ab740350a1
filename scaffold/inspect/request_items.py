"""Plain lists and texts of which a part, or how many there are, is not known."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from scaffold.inspect.program.numeric import MISSING, fold
from scaffold.inspect.program.values import Map, Seq
from scaffold.source.values import Value


class Some(list[Any]):
    """The items of a list that a loop filled, where how many there are is not known."""


def chat_words(messages: Any) -> str | None:
    """The words of a chat's messages; what its template puts between them is the checkpoint's."""
    if isinstance(messages, (list, tuple)):
        found = [chat_words(message) for message in messages]
        return None if None in found else "\n".join(f for f in found if f is not None)
    if isinstance(messages, dict):
        words = messages.get("content", messages.get("text"))
        return chat_words(words) if words is not None else None
    return messages if isinstance(messages, str) else None


def maps_of(messages: Value) -> list[Map]:
    """The dictionaries of a list, of lists in it too."""
    if isinstance(messages, Map):
        return [messages]
    return [m for item in messages.items for m in maps_of(item)] if isinstance(messages, Seq) else []


def texts_of(known: Any) -> set[str | None]:
    """The texts in a plain value, None for what is not text; nothing for None, which is none."""
    if isinstance(known, (list, tuple)):
        return {text for item in known for text in texts_of(item)}
    if known is None:
        return set()
    return {known if isinstance(known, str) else None}


def repeated(args: list[Any]) -> Any:
    """A list or number times another; MISSING where it is not known."""
    items, count = (args[0], args[1]) if isinstance(args[0], list) else (args[1], args[0])
    if not isinstance(items, list):
        return fold("*", args) if all(is_whole(a) for a in args) else MISSING
    if type(count) is int and 0 <= count <= 8 and not isinstance(items, Some):
        return items * count
    return Some(items[:1]) if items and all(same_items(i, items[0]) for i in items) else MISSING


def is_whole(value: Any) -> bool:
    """Whether a value is known with all that it holds."""
    if value is MISSING or isinstance(value, Some):
        return False
    if isinstance(value, dict):
        return all(is_whole(v) for v in value.values())
    return all(is_whole(v) for v in value) if isinstance(value, (list, tuple)) else True


def same_items(left: Any, right: Any) -> bool:
    """Whether two values are wholly known and equal."""
    return is_whole(left) and type(left) is type(right) and bool(left == right)


def tried(compute: Callable[[], Any]) -> Any:
    """What a method of a plain value gives; MISSING where it does not take its arguments."""
    try:
        return compute()
    except (TypeError, ValueError, IndexError, KeyError, re.error):
        return MISSING
