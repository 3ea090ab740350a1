"""The autoencoder between latents and image."""

from __future__ import annotations

import ast
import re

from scaffold.inspect.facts import UNKNOWN, Confidence, Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import class_name, is_none, options, walk
from scaffold.inspect.program.numeric import default_of, number
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.values import Attr, Call, Conf, Const, Item, Map, Obj, Op, Param, Seq, Slot
from scaffold.inspect.questions.latents import (
    Unpatchify,
    decode_record,
    grid_letters,
    initial_noise,
    sample_rank,
    unpatchify,
)
from scaffold.source.syntax import around
from scaffold.source.values import ClassRef, External, Func, Value

ORDER = 9
KEYS = ("answers.vae.class", "answers.vae.downsample", "answers.vae.channels")


_PIXELS = (1024, 2048)
_VAE = re.compile(r"vae|autoencoder|vocoder", re.IGNORECASE)


_HELD = re.compile(r"(?:video_|image_)?vae")
_CLASS = re.compile(r"vae|autoencoder", re.IGNORECASE)
_PLACED = frozenset(("to", "eval", "cuda", "half", "bfloat16", "requires_grad_"))


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
            facts.update(_of_noise(program))
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


def _of_noise(program: Program) -> dict[str, Fact]:
    """Channels and stride where the sample starts as noise of the latents' own shape, (B, C, …, height, width)."""
    noise, rank = initial_noise(program), sample_rank(program)
    shape = noise.args[0] if noise is not None and noise.args else None
    if not isinstance(shape, Seq) or not shape.exact or len(shape.items) not in (4, 5):
        return {}
    if len(shape.items) != rank and not (rank == 3 and len(shape.items) == 4):
        # Noise in the shape of the latents is the sample, or is packed into tokens.
        return {}
    if rank == len(shape.items) and _is_unpacked(program):
        return {}
    facts: dict[str, Fact] = {}
    channels, own = shape.items[1], {cls.module.file for cls in program.cls.mro}
    literal = isinstance(channels, Const) and channels.value != 1 and _is_written(program, channels)
    if literal and channels.at is not None and channels.at.file in own:
        # A default of the denoiser's class is not the number that its checkpoint has.
        facts.update(_size("answers.vae.channels", channels, 1))
    strides = [_stride(side, name) for side, name in zip(shape.items[-2:], ("height", "width"), strict=True)]
    if strides[0] is not None and strides[0] == strides[1]:
        facts["answers.vae.downsample"] = fact(strides[0], [shape.items[-2].at, shape.items[-1].at])
    return facts


def _is_unpacked(program: Program) -> bool:
    """Whether the decoder gets the sample with channels spread over pixels: its own stride is another."""
    record, loop = decode_record(program), program.denoising
    if record is None or loop is None or loop.sample is None:
        return False
    stop = {id(value) for value in (loop.sample, loop.sample.final, loop.step, loop.inline) if value is not None}
    given = [node for value in record.arguments for node in walk(value, stop)]
    for node in given:
        if isinstance(node, Call) and node.name in ("reshape", "view", "permute", "unflatten", "pixel_shuffle"):
            sizes = node.args[0].items if node.args and isinstance(node.args[0], Seq) else node.args
            if len(sizes) > 5 or node.name == "pixel_shuffle":
                return True
    return False


def _is_written(program: Program, channels: Const) -> bool:
    """Whether a number is not a result of arithmetic on others."""
    place = channels.at
    if place is None:
        return False
    written = (n for n in around(program.source.tree(place.file), place.line) if isinstance(n, ast.Constant))
    return any(type(n.value) is int and n.value == channels.value for n in written)


def _stride(side: Value, name: str) -> int | None:
    """Pixels of the image to one entry of a side of the latents, if the side is the request's by a number."""
    if any(isinstance(n, Conf) for n in walk(side)):
        return None
    given = [n for n in walk(side) if isinstance(n, Param) and n.key == name]
    if not given:
        return None
    sides = [number(side, {id(n): float(pixels) for n in given}) for pixels in _PIXELS]
    strides = {pixels / length for pixels, length in zip(_PIXELS, sides, strict=True) if length}
    stride = strides.pop() if len(strides) == 1 and all(sides) else 0.0
    return int(stride) if stride >= 1 and stride == int(stride) else None


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
    """The one class of autoencoders under the usual names of such an attribute; sound has its own.

    ``certain`` where its one construction is seen to decode.
    """
    found: dict[str, Fact] = {}
    for attribute, value in program.pipeline.attrs.items():
        if not _HELD.fullmatch(attribute):
            continue
        made = [_placed(o) for o in options(value) if not is_none(o) and not isinstance(o, Slot)]
        names = {name for o in made for name in _class_names(program, o)}
        if not made or len(names) != 1:
            return UNKNOWN
        name = names.pop()
        if name is None or not _CLASS.search(name):
            return UNKNOWN
        decoding = [r.at for r in program.trace.calls if r.method == "decode" and _is_one_of(r.receiver, made)]
        sure = decoding and all(class_name(o) == name for o in made)
        found.setdefault(name, fact(name, [made[0].at, *decoding[:1]], "certain" if sure else "likely"))
    return next(iter(found.values())) if len(found) == 1 else UNKNOWN


def _class_names(program: Program, value: Value) -> set[str | None]:
    """The classes that a value may be an instance of; None where one is not known."""
    known = class_name(value)
    if known is not None:
        return {known}
    func = value.func if isinstance(value, Call) else None
    maker = func.base if isinstance(func, Attr) and func.name.startswith("from_") else func
    return {_name(cls) for cls in _alternatives(program, maker)} if maker is not None else {None}


def _placed(value: Value) -> Value:
    """Return the module behind calls that move it or set eval mode."""
    while isinstance(value, Call) and isinstance(value.func, Attr) and value.func.name in _PLACED:
        value = value.func.base
    return value


def _alternatives(program: Program, value: Value) -> list[Value]:
    """Return the alternatives of a table's entry, or of an attribute of one."""
    if isinstance(value, Item) and isinstance(value.base, Map):
        return [*value.base.items.values(), *value.base.unkeyed]
    if isinstance(value, Attr):
        return [_attribute(program, held, value.name) for held in _alternatives(program, value.base)]
    return [value]


def _attribute(program: Program, value: Value, name: str) -> Value:
    replaced = isinstance(value, Call) and isinstance(value.func, External) and value.func.path == "dataclasses.replace"
    if isinstance(value, Call) and replaced and value.args:
        return value.kwargs[name] if name in value.kwargs else _attribute(program, value.args[0], name)
    return program.execution.get_attr(value, name, value.at) if isinstance(value, Obj) else value


def _name(value: Value) -> str | None:
    if isinstance(value, ClassRef):
        return value.cls.name
    last = value.path.rpartition(".")[2] if isinstance(value, External) else ""
    return last if last[:1].isupper() else None


def _is_one_of(receiver: Value | None, made: list[Value]) -> bool:
    return any(_placed(o) is m for o in options(receiver) for m in made)
