"""How latent tokens know their place: a table added to them, and their rotary position."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import Search, options, reach, walk, walk_all
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.turns import is_entry
from scaffold.inspect.program.values import Attr, Call, Const, Obj, Op, Seq
from scaffold.inspect.questions.denoiser import find_denoiser
from scaffold.inspect.questions.prompt import encode_calls
from scaffold.source.values import Value

ORDER = 14
KEYS = (
    "detail.position.attribute",
    "detail.rope.image_position",
)
_COUNTED = frozenset(("arange", "range", "meshgrid", "linspace"))
_SIZES = frozenset(("shape", "size", "numel", "len", "device", "dtype"))
_JOINS = frozenset(("cat", "concat", "concatenate"))
PLACES = re.compile(r"(?:^|_)pos(?:_|$|ition)")


def answers(program: Program) -> dict[str, Fact]:
    facts = _table(program)
    facts.update(_rotary(program))
    return facts


def _table(program: Program) -> dict[str, Fact]:
    """A table of the denoiser that is asked for places in the loop and added to the tokens."""
    loop, denoiser = program.denoising, find_denoiser(program)
    if loop is None or denoiser is None or loop.sample is None:
        return {}
    inside = [r for r in program.trace.calls if loop.number in r.loops and isinstance(r.receiver, Obj)]
    asked = {id(r.receiver): r for r in inside}
    for root in options(denoiser.receiver):
        for name, held in root.attrs.items() if isinstance(root, Obj) else ():
            tables = [o for o in options(held) if isinstance(o, Obj) and id(o) in asked]
            if not any(_holds_weights(program, table) for table in tables):
                continue
            if all(_are_places(asked[id(t)], loop) and _is_added(program, asked[id(t)], loop) for t in tables):
                return {"detail.position.attribute": fact(name, [t.at for t in tables])}
    return {}


def _are_places(record: CallRecord, loop: Denoising) -> bool:
    """Whether a call is given numbers that were counted, and nothing of the sample, its time or the text."""
    nodes = list(_contents(record.arguments))
    counted = any(isinstance(n, Call) and n.name in _COUNTED for n in nodes)
    return counted and not any(n is loop.sample or is_entry(n, loop.number) for n in nodes)


def _contents(values: list[Value]) -> Iterator[Value]:
    """Yield values and what their contents were made from; what only gave its size is left out."""

    def contents(nodes: list[Value]) -> list[Value]:
        return [n for n in nodes if not (isinstance(n, (Attr, Call)) and n.name in _SIZES)]

    return reach(contents(values), lambda node: contents(node.parts()))


def _is_added(program: Program, record: CallRecord, loop: Denoising) -> bool:
    """Whether what a call gives is added to, or joined with, what was made of the sample."""
    of_sample = Search(lambda node: node is loop.sample)
    given = [v for r in program.trace.calls if loop.number in r.loops for v in r.arguments]
    made = [v for v in (loop.model_output,) if v is not None]
    for node in walk_all([*made, *given], {id(loop.sample)}):
        terms = _terms(node)
        from_table = [any(o is record.result for o in options(term)) for term in terms]
        if any(from_table) and any(of_sample(t) for t, own in zip(terms, from_table, strict=True) if not own):
            return True
    return False


def _terms(node: Value) -> list[Value]:
    """What a sum or a join is made of."""
    if isinstance(node, Op) and node.op == "+":
        return [t for a in node.args for t in (_terms(a) or [a])]
    if isinstance(node, Call) and node.name in _JOINS and node.args and isinstance(node.args[0], Seq):
        return list(node.args[0].items)
    return []


def _holds_weights(program: Program, table: Obj) -> bool:
    program.execution.attributes.ensure_ready(table)
    return any(isinstance(o, Call) and o.name == "Parameter" for v in table.attrs.values() for o in options(v))


def _rotary(program: Program) -> dict[str, Fact]:
    """One position for all tokens of the image: the number of text ids, or a constant."""
    denoiser = find_denoiser(program)
    if denoiser is None:
        return {}
    encoded = [r.result for r in encode_calls(program)]
    sample = program.denoising.sample if program.denoising is not None else None
    stop = {id(sample)}
    seen: set[int] = set()
    for name, value in denoiser.record.bound.items():
        if not PLACES.search(name):
            # A mask, a length or a batch of conditions is a list of one number as well.
            continue
        for node in walk(value, stop, seen):
            if not (isinstance(node, Op) and node.op == "*" and isinstance(node.args[0], Seq)):
                continue
            repeated = node.args[0]
            if len(repeated.items) != 1:
                continue
            kind = _position(repeated.items[0], encoded)
            if kind is not None:
                return {"detail.rope.image_position": fact(kind, [node.at, repeated.items[0].at])}
    return {}


def text_position(value: Value, encoded: list[Value]) -> bool:
    """Whether a position is made of the number of text ids."""
    lengths = [n.args[0] for n in walk(value) if isinstance(n, Call) and n.name == "len" and n.args]
    return any(inner is e for length in lengths for inner in walk(length) for e in encoded)


def _position(value: Value, encoded: list[Value]) -> str | None:
    if text_position(value, encoded):
        return "text_length"
    if isinstance(value, Const) and value.value == 0:
        return "zero"
    return None
