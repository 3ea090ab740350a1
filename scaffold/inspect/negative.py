"""What the unconditional branch is given when the user gives no negative prompt."""

from __future__ import annotations

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, same, walk
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.values import Param, Value
from scaffold.inspect.prompt import encode_calls

ORDER = 12
KEYS = ("detail.negative.kind", "detail.negative.keys")


def answers(program: Program) -> dict[str, Fact]:
    for record in encode_calls(program):
        text = record.args[0] if record.args else next(iter(record.kwargs.values()), None)
        params = [n for n in walk(text) if isinstance(n, Param) and n.root in ("prompt", "extra_args")] if text else []
        if text is None or not params or any(p.key == "prompt" for p in params):
            continue
        known = _default_text(text)
        guarded = any(truth and _is_of(cond, text) for cond, truth in record.conditions)
        kind = None
        if known in ("", None) and guarded:
            kind = "empty"
        elif known == "":
            kind = "empty_string"
        elif known == " ":
            kind = "space"
        places = [*(p.at for p in params), record.at]
        keys = list(dict.fromkeys(f"{p.root}.{p.key}" for p in params))
        facts = {"detail.negative.keys": fact(keys, places)}
        if kind is not None:
            facts["detail.negative.kind"] = fact(kind, places)
        return facts
    return {}


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
