"""Attributes and entries of code that is not ours, replaced for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

_ABSENT = object()


@contextmanager
def with_attribute(holder: object, name: str, value: Any, *, create: bool = False) -> Iterator[Any]:
    """Give a module, a class or an object another attribute, and yield that.

    Args:
        holder: what has it; an attribute of its class, or of a base, is hidden and not changed.
        name: of the attribute.
        value: what it is inside of the block.
        create: whether it may be missing.

    Raises:
        AttributeError: it is missing.
    """
    if not create:
        getattr(holder, name)
    before = vars(holder).get(name, _ABSENT)
    setattr(holder, name, value)
    try:
        yield value
    finally:
        if before is _ABSENT:
            delattr(holder, name)
        else:
            setattr(holder, name, before)


@contextmanager
def with_entries(mapping: MutableMapping[str, Any], entries: Mapping[str, Any]) -> Iterator[None]:
    """Give a mapping, such as ``os.environ``, other entries; all that it holds is as before after the block."""
    before = dict(mapping)
    mapping.update(entries)
    try:
        yield
    finally:
        for name in set(mapping) - set(before):
            del mapping[name]
        mapping.update(before)
