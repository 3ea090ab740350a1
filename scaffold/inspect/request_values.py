"""Plain values behind symbolic ones on a request that gives a prompt and, or not, a negative prompt.

Everything else that a request may hold is absent. Its numbers are not known, so that guidance may be on or off.
"""

from __future__ import annotations

import html
import re
from typing import Any

from scaffold.inspect.program.conditions import none_ness
from scaffold.inspect.program.numeric import MISSING, TYPES, default_of, fold
from scaffold.inspect.program.values import Attr, Call, Carried, Choice, Const, Elem, Item, Map, Op, Param, Seq, Slice
from scaffold.inspect.request_items import Some, chat_words, is_whole, repeated, same_items, tried
from scaffold.source.values import External, Value

PROMPT, NEGATIVE = "\ue000", "\ue001"
"""Stand for the user's words; no text of a source holds these characters."""
_NEGATIVE_KEY = re.compile(r"neg|uncond")
_NO_WORDS = re.compile(r"embed|mask|ids|hidden|states|scale|image|audio|video|latent|path")
_COMES_ALONG = re.compile(r"(multi_modal|additional_information|modalities|extra)(?!.*embed)")
_STRIPS = frozenset(("strip", "lstrip", "rstrip", "removeprefix", "removesuffix"))
_METHODS = _STRIPS | {"lower", "split", "join", "replace", "format", "startswith", "endswith"}
_SAME_TEXT = frozenset(("ftfy.fix_text", "builtins.str", "copy.deepcopy", "copy.copy"))
_LIMIT = 60
_MOST = 3_000
"""How deep values may nest, and how many of one pipeline are evaluated for one form of a request."""
CHAT = "apply_chat_template"


def is_negative(param: Param) -> bool:
    """Whether a field of the request holds the words of a negative prompt."""
    given = param.root in ("prompt", "extra_args", "sampling_params")
    return given and _NEGATIVE_KEY.search(param.key) is not None and _NO_WORDS.search(param.key) is None


class RequestValues:
    """Evaluates values for one form of a request.

    Args:
        negative: whether a negative prompt is given.
        as_text: whether the request is the prompt's text, and not a dictionary that holds it.
    """

    def __init__(self, *, negative: bool = False, as_text: bool = False) -> None:
        self._negative = negative and not as_text
        self._as_text = as_text
        self._done: dict[int, Any] = {}
        self._nones: dict[int, bool | None] = {}
        self._open: set[int] = set()
        self._assumed: dict[int, Any] = {}
        self._supposed = 0

    def of(self, value: Value | None) -> Any:
        """The plain value, with the marks for the user's words; MISSING where it is not known."""
        if value is None:
            return MISSING
        if isinstance(value, Const):
            return value.value
        key = id(value)
        if key in self._assumed:
            self._supposed += 1
            return self._assumed[key]
        if key in self._done:
            return self._done[key]
        if key in self._open or len(self._open) > _LIMIT or len(self._done) > _MOST:
            # What rests on this is unknown from here on, so that every value is computed but once.
            return MISSING
        supposed = self._supposed
        self._open.add(key)
        try:
            result = self._compound(value)
        finally:
            self._open.discard(key)
        if supposed == self._supposed:
            self._done[key] = result
        return result

    def holds(self, cond: Value) -> bool | None:
        """The truth of a condition; None where both ways are possible."""
        known = self.of(cond)
        return None if known is MISSING or isinstance(known, Some) else bool(known)

    def _compound(self, value: Value) -> Any:
        if isinstance(value, Param):
            return self._param(value)
        if isinstance(value, Seq):
            items = [self.of(item) for item in value.items[:32]]
            if not value.exact or len(value.items) > 32:
                return Some(items[:1]) if items and all(same_items(i, items[0]) for i in items) else MISSING
            return tuple(items) if value.kind == "tuple" else items
        if isinstance(value, Map):
            return {k: self.of(v) for k, v in value.items.items()} if value.exact and not value.maybe else MISSING
        if isinstance(value, Choice):
            return self._choice(value)
        if isinstance(value, Op):
            return self._operation(value)
        if isinstance(value, Elem):
            source = self.of(value.source)
            several = isinstance(source, (list, tuple)) and source
            return source[0] if several and all(same_items(s, source[0]) for s in source) else MISSING
        if isinstance(value, Item):
            return self._item(value)
        if isinstance(value, Carried):
            return self._carried(value)
        if isinstance(value, Call):
            return self._call(value)
        return MISSING

    def _param(self, param: Param) -> Any:
        if is_negative(param):
            return NEGATIVE if self._negative else self._absent(param)
        if param.root == "prompt" and param.key in ("", "prompt"):
            return PROMPT if param.key or self._as_text else MISSING
        if param.root == "prompt":
            # What comes along with text, such as pictures, may be there.
            return MISSING if _COMES_ALONG.match(param.key) else self._absent(param)
        if param.root == "extra_args":
            known = self._absent(param)
            return known if known is None else MISSING
        return default_of(param) if param.root == "od_config" and param.default is not None else MISSING

    def _absent(self, param: Param) -> Any:
        return None if param.default is None else self.of(param.default)

    def _choice(self, value: Choice) -> Any:
        if value.cond is not None and len(value.options) == 2:
            truth = self.holds(value.cond)
            if truth is not None:
                return self.of(value.options[0 if truth else 1])
        first = self.of(value.options[0])
        return first if all(same_items(self.of(option), first) for option in value.options) else MISSING

    def _operation(self, value: Op) -> Any:
        if value.op in ("and", "or"):
            return self._either(value.args, value.op == "or")
        if value.op in ("is", "isnot") and isinstance(value.args[1], Const) and value.args[1].value is None:
            none = self._is_none(value.args[0])
            return MISSING if none is None else none is (value.op == "is")
        if value.op in ("in", "notin"):
            return self._contains(value.args[0], value.args[1], value.op == "in")
        args = [self.of(arg) for arg in value.args]
        if value.op == "format":
            return "".join(map(str, args)) if all(is_whole(a) for a in args) else MISSING
        if value.op == "not":
            truth = self.holds(value.args[0])
            return MISSING if truth is None else not truth
        if value.op == "*" and len(args) == 2:
            return repeated(args)
        if value.op == "+" and any(isinstance(a, Some) for a in args):
            found = [item for a in args for item in a] if all(isinstance(a, list) for a in args) else []
            return Some(found[:1]) if found and all(same_items(f, found[0]) for f in found) else MISSING
        return fold(value.op, args) if all(is_whole(a) for a in args) else MISSING

    def _either(self, args: list[Value], decisive: bool) -> Any:
        """``or`` ends at what holds, ``and`` at what does not; what is not known may be either."""
        unknown = False
        for arg in args:
            truth = self.holds(arg)
            if truth is decisive:
                return MISSING if unknown and decisive else self.of(arg)
            unknown = unknown or truth is None
        return MISSING if unknown else self.of(args[-1])

    def _is_none(self, value: Value) -> bool | None:
        key = id(value)
        if key in self._nones:
            return self._nones[key]
        # Until it is known, for what it is part of.
        self._nones[key] = None
        found = self._nones[key] = self._find_none(value)
        if self._assumed:
            del self._nones[key]
        return found

    def _find_none(self, value: Value) -> bool | None:
        known = self.of(value)
        if known is not MISSING:
            return known is None
        if isinstance(value, Param):
            if value.root == "prompt" and not value.key:
                return False
            absent = value.default is not None and default_of(value) is None
            return True if absent and value.root in ("sampling_params", "extra_args", "od_config") else None
        if isinstance(value, Choice):
            found = {self._is_none(option) for option in value.options}
            return found.pop() if len(found) == 1 else None
        return none_ness(value) if not isinstance(value, Carried) else None

    def _contains(self, needle: Value, stack: Value, wanted: bool) -> Any:
        key = self.of(needle)
        if isinstance(stack, Param) and stack.root == "prompt" and not stack.key and isinstance(key, str):
            if self._as_text:
                return MISSING
            is_given = key == "prompt" or (self._negative and is_negative(Param("prompt", key)))
            return is_given is wanted
        held = self.of(stack)
        if isinstance(held, Some) or not (is_whole(key) and isinstance(held, (list, tuple, dict, str))):
            return MISSING
        return fold("in" if wanted else "notin", [key, held])

    def _item(self, value: Item) -> Any:
        base = self.of(value.base)
        if isinstance(value.key, Slice):
            return base if isinstance(base, Some) else MISSING
        key = self.of(value.key)
        if isinstance(base, Some):
            return base[0] if type(key) is int or key is MISSING else MISSING
        if isinstance(base, (list, tuple)) and key is MISSING:
            return base[0] if base and all(same_items(b, base[0]) for b in base) else MISSING
        try:
            return MISSING if base is MISSING or key is MISSING else base[key]
        except (TypeError, KeyError, IndexError):
            return MISSING

    def _carried(self, value: Carried) -> Any:
        """What a loop leaves as it was."""
        start = self.of(value.init)
        if start is MISSING or value.final is None:
            return MISSING
        self._assumed[id(value)] = start
        try:
            return start if same_items(self.of(value.final), start) else MISSING
        finally:
            del self._assumed[id(value)]

    def _call(self, value: Call) -> Any:
        if isinstance(value.func, Attr):
            return self._method(value, value.func)
        path = value.func.path if isinstance(value.func, External) else ""
        if path == "builtins.isinstance" and len(value.args) == 2:
            return self._is_instance(value.args[0], value.args[1])
        args = [self.of(arg) for arg in value.args]
        if path in _SAME_TEXT and len(args) == 1:
            return args[0] if isinstance(args[0], str) else MISSING
        if path == "html.unescape" and len(args) == 1 and isinstance(args[0], str):
            return html.unescape(args[0])
        if path == "re.sub" and len(args) == 3 and all(isinstance(a, str) for a in args):
            return tried(lambda: re.sub(args[0], args[1], args[2]))
        if path in ("builtins.list", "builtins.tuple") and len(args) == 1 and isinstance(args[0], (list, tuple)):
            return args[0]
        if path == "builtins.len" and len(args) == 1 and isinstance(args[0], (str, list, tuple, dict)):
            marked = isinstance(args[0], str) and (PROMPT in args[0] or NEGATIVE in args[0])
            return MISSING if marked or isinstance(args[0], Some) else len(args[0])
        if path in ("builtins.any", "builtins.all") and len(args) == 1 and isinstance(args[0], (list, tuple)):
            return self._quantified(args[0], path == "builtins.any")
        return MISSING

    @staticmethod
    def _quantified(items: list[Any] | tuple[Any, ...], decisive: bool) -> Any:
        truths = [None if i is MISSING else bool(i) for i in items]
        if decisive in truths:
            return decisive
        return MISSING if None in truths else not decisive

    def _is_instance(self, value: Value, kind: Value) -> Any:
        kinds = (
            kind.items if isinstance(kind, Seq) else kind.args if isinstance(kind, Op) and kind.op == "|" else [kind]
        )
        named = [k.path if isinstance(k, External) else "" for k in kinds]
        if isinstance(value, Param) and value.root == "prompt" and not value.key:
            return ("builtins.str" if self._as_text else "builtins.dict") in named or (
                MISSING if "" in named else False
            )
        held = self.of(value)
        if held is MISSING or "" in named:
            return MISSING
        # A plain value is an instance of no class of a library.
        return isinstance(held, tuple(TYPES[n] for n in named if n in TYPES))

    def _method(self, value: Call, func: Attr) -> Any:
        if func.name == "maybe_convert_prompt" and value.args:
            # Replaces words that stand for learned embeddings, which nobody has loaded.
            return self.of(value.args[0])
        if func.name == CHAT:
            words = chat_words(self.of(value.argument(0, "conversation")))
            return MISSING if words is None else words
        if func.name not in _METHODS or value.kwargs:
            return MISSING
        base, args = self.of(func.base), [self.of(arg) for arg in value.args]
        if not isinstance(base, str) or not all(is_whole(a) for a in args):
            return MISSING
        return tried(lambda: getattr(base, func.name)(*args))
