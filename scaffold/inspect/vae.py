"""The autoencoder between latents and image."""

from __future__ import annotations

from scaffold.inspect.facts import Confidence, Fact, fact
from scaffold.inspect.latents import decode_record, grid_letters, grid_stride, unpatchify
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import class_name, options, walk
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import Attr, Conf, Value

ORDER = 9
KEYS = (
    "answers.vae.class",
    "answers.vae.downsample",
    "answers.vae.channels",
    "detail.vae.attribute",
)


def answers(program: Program) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    record = decode_record(program)
    if record is None:
        return facts
    receiver = record.receiver
    if receiver is None and isinstance(record.func, Attr):
        receiver = record.func.base
    for option in options(receiver) if receiver is not None else []:
        name = class_name(option)
        if name is not None:
            facts["answers.vae.class"] = fact(name, [option.at, record.at])
            held = program.attribute_of(option)
            if held is not None:
                facts["detail.vae.attribute"] = fact(held, [option.at])
            break
    found = unpatchify(program)
    letters = grid_letters(found) if found is not None else None
    if found is not None and letters is not None:
        channels = found.sizes[letters[4]]
        facts.update(_size("answers.vae.channels", channels, 1))
        stride = grid_stride(found)
        patch = default_of(found.sizes[letters[2]])
        if stride is not None and isinstance(patch, int) and patch > 0:
            facts.update(_size("answers.vae.downsample", stride, patch))
    return facts


def _size(key: str, value: Value, divisor: int) -> dict[str, Fact]:
    known = default_of(value)
    if not isinstance(known, int) or isinstance(known, bool) or known % divisor:
        return {}
    configured = [n for n in walk(value) if isinstance(n, Conf)]
    confidence: Confidence = "likely" if configured else "certain"
    return {key: fact(known // divisor, [*(n.at for n in configured), value.at], confidence)}
