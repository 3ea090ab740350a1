"""What the unconditional branch is given when the user gives no negative prompt."""

from __future__ import annotations

import re

from scaffold.inspect.denoiser import find_denoiser
from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import is_none, options, same
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.values import Attr, Call, Const, Item, Op, Param, Seq, Slice, Value
from scaffold.inspect.prompt import encode_calls

ORDER = 12
KEYS = ("detail.negative.kind", "detail.negative.keys")
_NEGATIVE = re.compile(r"neg|uncond")
_TEXTS = {"": "empty_string", " ": "space"}
_ZEROS = frozenset(("zeros_like", "zeros", "new_zeros"))


def answers(program: Program) -> dict[str, Fact]:
    """``kind`` is ``empty`` (nothing, or no tokens), ``empty_string``, ``space``, ``zeros`` or ``special_tokens``."""
    facts = _by_text(program)
    if "detail.negative.kind" not in facts:
        facts.update(_by_difference(program))
    return facts


def _by_text(program: Program) -> dict[str, Fact]:
    """From the text that is encoded for a key of the request other than the prompt."""
    for record in encode_calls(program):
        text = record.args[0] if record.args else next(iter(record.kwargs.values()), None)
        params = [n for n in _spoken(text) if isinstance(n, Param) and n.root in ("prompt", "extra_args")]
        if text is None or not params or not all(_NEGATIVE.search(p.key) for p in params):
            continue
        known = _default_text(text)
        guarded = any(truth and _is_of(cond, text) for cond, truth in record.conditions)
        kind = None
        if known in ("", None) and guarded:
            kind = "empty"
        elif isinstance(known, str):
            kind = _TEXTS.get(known)
        places = [*(p.at for p in params), record.at]
        keys = list(dict.fromkeys(f"{p.root}.{p.key}" for p in params))
        facts = {"detail.negative.keys": fact(keys, places)}
        if kind is not None:
            facts["detail.negative.kind"] = fact(kind, places)
        return facts
    return {}


def _spoken(text: Value | None) -> list[Value]:
    """What a text is made of; how often it is repeated is not."""
    found, stack, seen = [], [text] if text is not None else [], set[int]()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        found.append(node)
        repeated = [a for a in node.args if isinstance(a, Seq)] if isinstance(node, Op) and node.op == "*" else []
        stack.extend(reversed(repeated or node.parts()))
    return found


def _by_difference(program: Program) -> dict[str, Fact]:
    """From what one prediction of a turn is given in place of what was made of the prompt for another."""
    loop, denoiser = program.denoising, find_denoiser(program)
    if loop is None or denoiser is None or not denoiser.record.bound:
        return {}
    calls = [
        r
        for r in program.trace.calls
        if loop.number in r.loops and r.bound and r.method == denoiser.record.method
        and getattr(r.func, "node", None) is getattr(denoiser.record.func, "node", None)
    ]  # fmt: skip
    known: dict[int, bool] = {}

    def made_of_prompt(value: Value) -> bool:
        if id(value) not in known:
            known[id(value)] = _of_prompt(value)
        return known[id(value)]

    for record in calls:
        for name, value in record.bound.items():
            others = [c.bound[name] for c in calls if name in c.bound and not same(c.bound[name], value)]
            if others and any(made_of_prompt(o) for o in others) and not made_of_prompt(value):
                kind = _kind_of(value)
                return {"detail.negative.kind": fact(kind, [value.at, record.at])} if kind is not None else {}
    return {}


def _of_prompt(value: Value) -> bool:
    return any(isinstance(n, Param) and n.root == "prompt" and n.key in ("", "prompt") for n in _content(value))


def _content(value: Value) -> list[Value]:
    """What a value holds; of a tensor that is made like another, or an empty part of it, nothing of the other."""
    found, stack, seen = [], [value], set[int]()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        found.append(node)
        if not (isinstance(node, Call) and node.name in _ZEROS) and not _is_empty(node):
            stack.extend(node.parts())
    return found


def _kind_of(value: Value) -> str | None:
    kinds = {_option_kind(o) for o in options(value)}
    return kinds.pop() if len(kinds) == 1 else None


def _option_kind(value: Value) -> str | None:
    nodes = _content(value)
    if _is_empty(value) or is_none(value):
        return "empty"
    if isinstance(value, Call) and value.name in _ZEROS:
        return "zeros"
    texts = [n.args[0] for n in nodes if isinstance(n, Call) and n.args and isinstance(n.args[0], Const)]
    if any(n.name == "convert_tokens_to_ids" for n in nodes if isinstance(n, Call)):
        return "special_tokens"
    if any(isinstance(n, Attr) and n.name.endswith("_token_id") for n in nodes):
        return "special_tokens"
    spoken = {t.value for t in texts if isinstance(t.value, str)}
    return _TEXTS.get(spoken.pop()) if len(spoken) == 1 else None


def _is_empty(value: Value) -> bool:
    """A list without items, a part of no length, or a tensor with an axis of length zero."""
    if isinstance(value, Seq):
        return value.exact and not value.items
    if isinstance(value, Item):
        keys = value.key.items if isinstance(value.key, Seq) else [value.key]
        return any(isinstance(k, Slice) and k.lower is None and default_of(k.upper) == 0 for k in keys)
    if isinstance(value, Call) and value.name in ("empty", "zeros", "ones", "new_empty", "new_zeros") and value.args:
        shape = value.args[0].items if isinstance(value.args[0], Seq) else value.args
        return any(type(default_of(s)) is int and default_of(s) == 0 for s in shape)
    return False


def _default_text(text: Value) -> object:
    """The text when nothing is given; alternatives that all mean nothing agree."""
    whole = default_of(text)
    if isinstance(whole, list | tuple) and whole:
        whole = whole[0]
    if whole is not MISSING:
        return whole
    found = [d for o in options(text) if (d := default_of(o)) is not None and d is not MISSING]
    if not found:
        return None
    return found[0] if all(f == found[0] for f in found) else MISSING


def _is_of(cond: Value, text: Value) -> bool:
    return same(cond, text) or any(same(c, t) for c in options(cond) for t in options(text))
