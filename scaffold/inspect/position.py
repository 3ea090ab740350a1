"""How latent tokens know their place: a table added to them, and their rotary position."""

from __future__ import annotations

from scaffold.inspect.denoiser import find_denoiser
from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import Call, Const, Obj, Op, Seq, Value
from scaffold.inspect.prompt import encode_calls

ORDER = 14
KEYS = (
    "detail.position.kind",
    "detail.position.attribute",
    "detail.position.module",
    "detail.position.side",
    "detail.rope.image_position",
    "detail.rope.parameter",
)


def answers(program: Program) -> dict[str, Fact]:
    facts = _table(program)
    facts.update(_rotary(program))
    return facts


def _table(program: Program) -> dict[str, Fact]:
    """A table in the denoiser that is indexed in the loop, by how it is filled."""
    loop, denoiser = program.denoising, find_denoiser(program)
    if loop is None or denoiser is None:
        return {}
    for root in options(denoiser.receiver) if denoiser.receiver is not None else []:
        if not isinstance(root, Obj):
            continue
        used = {id(r.receiver) for r in program.trace.calls if loop.number in r.loops}
        for name, held in root.attrs.items():
            for option in options(held):
                if isinstance(option, Obj) and id(option) in used and (kind := _kind(program, option)) is not None:
                    facts = {
                        "detail.position.kind": fact(kind, [program.place(option.cls), option.at]),
                        "detail.position.attribute": fact(name, [option.at]),
                        "detail.position.module": fact(name, [option.at]),
                    }
                    side = default_of(option.args[0]) if option.args else None
                    if type(side) is int:
                        facts["detail.position.side"] = fact(side, [option.args[0].at, option.at], "likely")
                    return facts
    return {}


def _kind(program: Program, table: Obj) -> str | None:
    """Fill a copy of the table again and look at what that calls."""
    before = len(program.trace.calls)
    copy = Obj(table.cls, table.args, table.kwargs, at=table.at)
    program.ensure_ready(copy)
    called = {r.method for r in program.trace.calls[before:]}
    held = any(isinstance(o, Call) and o.name == "Parameter" for v in copy.attrs.values() for o in options(v))
    if not held:
        return None
    waves = {"sin", "cos"} <= called
    if waves:
        return "sincos_2d" if "meshgrid" in called else "sincos_1d"
    return "learned"


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
        for node in walk(value, stop, seen):
            if not (isinstance(node, Op) and node.op == "*" and isinstance(node.args[0], Seq)):
                continue
            repeated = node.args[0]
            if len(repeated.items) != 1:
                continue
            kind = _position(repeated.items[0], encoded)
            if kind is not None:
                return {
                    "detail.rope.image_position": fact(kind, [node.at, repeated.items[0].at]),
                    "detail.rope.parameter": fact(name, [node.at]),
                }
    return {}


def _position(value: Value, encoded: list[Value]) -> str | None:
    for node in walk(value):
        if isinstance(node, Call) and node.name == "len" and node.args:
            if any(inner is e for inner in walk(node.args[0]) for e in encoded):
                return "text_length"
    if isinstance(value, Const) and value.value == 0:
        return "zero"
    return None
