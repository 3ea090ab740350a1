"""Whether a layer's attention normalises queries and keys."""

from __future__ import annotations

import ast
import re

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import class_name, is_none, options, walk
from scaffold.inspect.program.values import Attr, Call, Obj, Op
from scaffold.inspect.questions.layers import parts_of, repeated_layers
from scaffold.source.syntax import around
from scaffold.source.values import Value

ORDER = 7
KEYS = ("detail.layers.qk_norm",)
_QUERY = re.compile(r"(?:^|_)(?:q|query)(?:_|$)")
_KEY = re.compile(r"(?:^|_)(?:k|key)(?:_|$)")
_PROJECTION = re.compile(r"^(?:(?:to|w|c|in)_?)?(?:q|qkv|query)(?:_?(?:proj|linear|projection))?$")


def answers(program: Program) -> dict[str, Fact]:
    """True where the first class of layers makes such norms whatever its configuration says, False where an attention
    of it has no norm at all; unknown otherwise."""
    found = repeated_layers(program)
    if not found:
        return {}
    layer = found[0][0]
    made: dict[str, list[Evidence | None]] = {"query": [], "key": []}
    of_heads: list[Evidence | None] = []
    open_ones, attentions, normed = False, list[Evidence | None](), False
    parts = parts_of(program, layer)
    some = {id(r.result) for r in program.trace.calls if r.conditions}
    for obj in parts:
        held = [*obj.attrs.items(), *_put_into(program, obj)]
        if any(_PROJECTION.match(name) for name, _ in held):
            attentions.append(obj.at)
            normed = normed or any("norm" in name or any(map(_is_norm, options(value))) for name, value in held)
        for name, value in held:
            kinds = [_is_norm(option) for option in options(value)]
            sides = [side for side, word in (("query", _QUERY), ("key", _KEY)) if word.search(name)]
            # What only some configurations make has one value as well.
            if all(kinds) and not (len(kinds) == 1 and id(value) in some and _is_branched(program, value)):
                of_heads += [o.at for o in options(value) if _is_one_head(o)][:1]
                for side in sides if "norm" in name else []:
                    made[side].append(value.at)
            elif any(kinds) and "norm" in name and sides:
                open_ones = True
    if made["query"] and made["key"]:
        return {KEYS[0]: fact(True, [*made["query"], *made["key"]])}
    if len(of_heads) >= 2:
        return {KEYS[0]: fact(True, of_heads)}
    if attentions and not normed and not open_ones:
        return {KEYS[0]: fact(False, attentions, "likely")}
    return {}


def _put_into(program: Program, obj: Obj) -> list[tuple[str, Value]]:
    """Attributes that an object sets on a module of a library that it holds."""
    held = {id(o) for value in obj.attrs.values() for o in options(value) if isinstance(o, Call)}
    return [(write.name, write.value) for write in program.trace.writes if id(write.base) in held]


def _is_branched(program: Program, value: Value) -> bool:
    """Whether a value is made inside an ``if``, not behind one that raises."""
    if value.at is None:
        return False
    return any(isinstance(node, ast.If) for node in around(program.source.tree(value.at.file), value.at.line))


def _is_norm(value: Value) -> bool:
    name = class_name(value) if isinstance(value, Obj | Call) else None
    return not is_none(value) and name is not None and "Norm" in name


def _is_one_head(value: Value) -> bool:
    """Whether a norm spans one head: its size is a quotient, hidden size by heads."""
    if not isinstance(value, Obj | Call):
        return False
    size = value.args[0] if value.args else next(iter(value.kwargs.values()), None)
    if size is None:
        return False
    if any(isinstance(n, Attr) and n.name in ("head_dim", "head_size") for n in options(size)):
        return True
    return any(isinstance(n, Op) and n.op == "//" for o in options(size) for n in walk(o))
