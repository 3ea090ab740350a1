"""The autoencoder between latents and image."""

from __future__ import annotations

import ast
import re

from scaffold.inspect.facts import UNKNOWN, Confidence, Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import class_name, is_none, options, walk
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.values import Conf, Const, Obj, Op, Slot
from scaffold.inspect.questions.latents import (
    Unpatchify,
    decode_record,
    grid_letters,
    unpatchify,
)
from scaffold.source.syntax import around
from scaffold.source.values import ClassRef, Func, Value

ORDER = 9
KEYS = ("answers.vae.class", "answers.vae.downsample", "answers.vae.channels")


_VAE = re.compile(r"vae|autoencoder|vocoder", re.IGNORECASE)


_HELD = re.compile(r"(?:video_|image_)?vae")


def answers(program: Program) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    record = decode_record(program)
    if record is None:
        return _none(program) or {"answers.vae.class": _held_autoencoder(program)}
    for option in options(record.held_by):
        name = class_name(option)
        # A pipeline that decodes by a method of its own is not an autoencoder.
        if name is not None and option is not program.pipeline:
            made = next((r.at for r in program.trace.calls if r.result is option), option.at)
            facts["answers.vae.class"] = fact(name, [made, record.at])
            break
    if "answers.vae.class" not in facts:
        facts["answers.vae.class"] = _held_autoencoder(program)
    found = unpatchify(program)
    letters = grid_letters(found) if found is not None else None
    if found is not None and letters is not None:
        channels = found.sizes[letters[4]]
        facts.update(_size("answers.vae.channels", channels, 1))
        stride = _stride_of_token(program, found)
        patch = default_of(found.sizes[letters[2]])
        if stride is not None and isinstance(patch, int) and patch > 0:
            facts.update(_size("answers.vae.downsample", stride, patch))
    return facts


def _none(program: Program) -> dict[str, Fact]:
    """No autoencoder, where nothing is decoded after a loop that was followed from the request to the result."""
    loop = program.denoising
    if loop is None or loop.sample is None or program.alone or program.result is None:
        return {}
    names = [*program.pipeline.attrs, *(c.func.cls.name for c in program.trace.calls if isinstance(c.func, ClassRef))]
    if any(_VAE.search(n) for n in names) or any(r.method == "decode" and not _is_text(r) for r in program.trace.calls):
        return {}
    return {key: fact(None, [loop.loop.at], "likely") for key in KEYS}


def _is_text(record: CallRecord) -> bool:
    """Whether a call turns ids into text."""
    made = [class_name(option) or "" for option in options(record.held_by)]
    return bool(made) and all(re.search(r"Tokenizer|Processor", name) for name in made)


def _stride_of_token(program: Program, found: Unpatchify) -> Value | None:
    """Pixels of the image that one token spans: the D of ``h = H // D``."""
    letters = grid_letters(found)
    row = found.sizes[letters[0]] if letters is not None else None
    for option in options(row):
        if isinstance(option, Op) and option.op == "//":
            return option.args[1]
        if isinstance(option, Const) and option.at is not None:
            return _written_divisor(program, option.at)
    return None


def _written_divisor(program: Program, at: Evidence) -> Value | None:
    """What a line divides by where both numbers are constants of the source: ``H // made.stride`` of an argument."""
    nodes = list(around(program.source.tree(at.file), at.line))
    divisors = [n.right for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.FloorDiv)]
    if len({ast.dump(d) for d in divisors}) != 1 or not isinstance(divisors[0], ast.Attribute):
        return None
    for record in program.trace.calls:
        followed = isinstance(record.func, Func) and any(n is record.func.node for n in nodes)
        holder = divisors[0].value
        if followed and isinstance(holder, ast.Name) and isinstance(held := record.bound.get(holder.id), Obj):
            divisor: Value = program.execution.get_attr(held, divisors[0].attr, at)
            return divisor
    return None


def _size(key: str, value: Value, divisor: int) -> dict[str, Fact]:
    known = default_of(value)
    if not isinstance(known, int) or isinstance(known, bool) or known % divisor:
        return {}
    configured = [n for n in walk(value) if isinstance(n, Conf)]
    confidence: Confidence = "likely" if configured else "certain"
    return {key: fact(known // divisor, [*(n.at for n in configured), value.at], confidence)}


def _held_autoencoder(program: Program) -> Fact:
    """The one class of what stands under the usual names of such an attribute; sound has its own."""
    held = [o for name, v in program.pipeline.attrs.items() if _HELD.fullmatch(name) for o in options(v)]
    made = [option for option in held if not is_none(option) and not isinstance(option, Slot)]
    names = {class_name(option) for option in made}
    name = names.pop() if len(names) == 1 else None
    return fact(name, [made[0].at], "likely") if name is not None and _VAE.search(name) else UNKNOWN
