"""The text that a value is on a request that gives a prompt and, or not, a negative prompt."""

from __future__ import annotations

from scaffold.inspect.program.numeric import MISSING
from scaffold.inspect.program.values import Call, Choice, Seq
from scaffold.inspect.request_items import Some, is_whole, maps_of, texts_of
from scaffold.inspect.request_values import CHAT, RequestValues
from scaffold.source.values import Value

_TURNS = 2_000


class RequestText(RequestValues):
    """Evaluates values where text is wanted, so that what may be a text or None is the text."""

    _turns = 0

    def text(self, value: Value | None) -> str | None:
        """The one text that a value is, or holds as its only item."""
        self._turns = _TURNS
        found = self._words(value, set()) if value is not None else set()
        return next(iter(found)) if len(found) == 1 and None not in found else None

    def _words(self, value: Value, seen: set[int]) -> set[str | None]:
        """The texts that a value may be where text is wanted, so never None; None for what is not known."""
        if id(value) in seen:
            return set()
        self._turns -= 1
        known = self.of(value) if self._turns > 0 else MISSING
        if known is not MISSING and is_whole(known):
            return texts_of(known)
        inner: list[Value] | None = None
        if self._turns <= 0:
            return {None}
        if isinstance(value, Choice):
            truth = self.holds(value.cond) if value.cond is not None and len(value.options) == 2 else None
            inner = value.options if truth is None else [value.options[0 if truth else 1]]
        elif isinstance(value, Seq):
            inner = value.items
        elif isinstance(value, Call) and value.name == CHAT and value.args:
            messages = [m for m in maps_of(value.args[0]) if "content" in m.items]
            inner = [messages[0].items["content"]] if len(messages) == 1 else None
        if inner is None:
            return texts_of(known) if isinstance(known, Some) else {None}
        return {text for part in inner for text in self._words(part, seen | {id(value)})}
