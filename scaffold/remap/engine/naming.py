"""Tables of the engine's parameters by name, some of whose modules hold more than the text lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from scaffold.remap.engine.tokens import Slot
from scaffold.remap.engine.tree import EngineModule

_NUMBER = re.compile(r"([A-Za-z_]\w*)\.(\d{1,9})(?=\.|$)")


class LayerCounts:
    """How many entries a list of layers has, by the attribute that holds it, as far as the names show."""

    def __init__(self, names: Iterable[str]) -> None:
        self._counts: dict[str, int] = {}
        for name in names:
            for attribute, number in _NUMBER.findall(name):
                self._counts[attribute] = max(self._counts.get(attribute, 0), int(number) + 1)

    def of(self, attribute: str) -> int:
        """Return the number of entries; 1 where no name tells."""
        return min(self._counts.get(attribute, 1), 4096)


class OpenNames:
    """Prefixes below which any name may be a parameter; ``{n}`` stands for a number."""

    def __init__(self, prefixes: dict[str, EngineModule]) -> None:
        self._modules = prefixes
        if prefixes:
            alternatives = "|".join(re.escape(p).replace(r"\{n\}", r"\d+") for p in sorted(prefixes, key=len))
            self._pattern: re.Pattern[str] | None = re.compile(f"(?:{alternatives})\\.(.+)")
        else:
            self._pattern = None

    def slot(self, name: Any) -> Slot | None:
        """Return the parameter that this name may be."""
        found = self._pattern.fullmatch(name) if self._pattern is not None and isinstance(name, str) else None
        return None if found is None else Slot(name, None)


class SlotTable(dict[str, Any]):
    """``{name: parameter}`` that also answers for names below open modules."""

    def __init__(self, items: Iterable[tuple[str, Any]], opened: OpenNames) -> None:
        super().__init__(items)
        self.opened = opened

    def get(self, key: Any, default: Any = None) -> Any:
        found = super().get(key)
        return found if found is not None else self.opened.slot(key) or default

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self.opened.slot(key) is not None

    def __missing__(self, key: str) -> Any:
        found = self.opened.slot(key)
        if found is None:
            raise KeyError(key)
        return found


class SlotNames(set[str]):
    """Names of parameters that also hold names below open modules."""

    def __init__(self, names: Iterable[str], opened: OpenNames) -> None:
        super().__init__(names)
        self.opened = opened

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self.opened.slot(key) is not None


class SlotItems(list[tuple[str, Any]]):
    """``(name, parameter)`` pairs, from which the two above are made."""

    def __init__(self, items: Iterable[tuple[str, Any]], opened: OpenNames) -> None:
        super().__init__(items)
        self.opened = opened


def slot_items(module: EngineModule, counts: LayerCounts, *, deduplicate: bool, recurse: bool = True) -> SlotItems:
    """Return the parameters below a module, under every name, or only the first as ``named_parameters`` does."""
    items: list[tuple[str, Slot]] = []
    opened: dict[str, EngineModule] = {}
    for name, node in module.walk(deduplicate=deduplicate) if recurse else [("", module)]:
        if node.open:
            opened[name] = node
        for own in node.parameters if node.parameters is not None else ("weight", "bias"):
            items.append((f"{name}.{own}" if name else own, Slot(f"{node.place}.{own}" if node.place else own,
                                                                 node.sharded)))  # fmt: skip
    opened.pop("", None)
    return SlotItems(_numbered(items, counts), OpenNames(opened))


def _numbered(items: list[tuple[str, Slot]], counts: LayerCounts) -> Iterator[tuple[str, Slot]]:
    for name, slot in items:
        if "{n}" not in name:
            yield name, slot
            continue
        yield from _fill(name.split("{n}"), slot, counts, "")


def _fill(pieces: list[str], slot: Slot, counts: LayerCounts, done: str) -> Iterator[tuple[str, Slot]]:
    if len(pieces) == 1:
        yield done + pieces[0], slot
        return
    attribute = pieces[0].rstrip(".").rpartition(".")[2]
    for number in range(counts.of(attribute)):
        place = slot.place.replace("{n}", str(number), 1)
        yield from _fill(pieces[1:], Slot(place, slot.sharded), counts, f"{done}{pieces[0]}{number}")
