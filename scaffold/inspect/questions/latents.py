"""The layout of the sample, and its mapping to the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import Search, options, walk
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.turns import without_reshaping
from scaffold.inspect.program.values import Attr, Call, Conf, Const, Elem, Op, Param, Seq
from scaffold.source.values import Value

ORDER = 10
KEYS = (
    "answers.latents.layout",
    "detail.scheduler.sample_rank",
    "detail.latents.patch",
    "detail.latents.noise_scale",
)

_NOISE = frozenset(("randn", "randn_tensor", "randn_like"))


def answers(program: Program) -> dict[str, Fact]:
    """Return the facts of ``KEYS``."""
    return {**_latents(program), **_noise_scale(program)}


@dataclass(frozen=True)
class Unpatchify:
    """``reshape → einsum → reshape`` from tokens to the image's latents."""

    pattern: str
    sizes: dict[str, Value]
    inner: Call
    einsum: Call
    outer: Call | None


def _latents(program: Program) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    noise = initial_noise(program)
    rank = sample_rank(program)
    if rank is not None:
        loop = program.denoising
        drawn = loop.sample.init if loop is not None and loop.sample is not None else None
        place = noise.at if noise is not None else drawn.at if drawn is not None else None
        facts["detail.scheduler.sample_rank"] = fact(rank, [place])
    found = unpatchify(program)
    if found is not None:
        places = [found.inner.at, found.einsum.at, found.outer.at if found.outer else None]
        layout = _layout(found)
        if layout is not None:
            facts["answers.latents.layout"] = fact(layout, places)
        patch = _patch(found)
        known = default_of(patch)
        if patch is not None and isinstance(known, int):
            facts["detail.latents.patch"] = fact(known, [patch.at, found.inner.at], "likely")
    return facts


def decode_record(program: Program) -> CallRecord | None:
    """The call that decodes what the denoising loop leaves."""
    loop = program.denoising
    if loop is None or loop.sample is None:
        return None
    from_sample = Search(lambda node: node is loop.sample)
    for record in program.trace.calls:
        if record.method != "decode" or loop.number in record.loops:
            continue
        given = record.arguments
        if any(from_sample(value) for value in given[:2]):
            return record
    return None


def initial_noise(program: Program) -> Call | None:
    """The noise that the sample starts as."""
    loop = program.denoising
    if loop is None or loop.sample is None or loop.sample.init is None:
        return None
    for node in walk(loop.sample.init):
        if isinstance(node, Call) and node.name in _NOISE:
            return node
    return None


def sample_rank(program: Program) -> int | None:
    """The number of dimensions of the sample, where it is noise of a literal shape, joined, stacked or scaled."""
    loop = program.denoising
    return _rank(loop.sample.init) if loop is not None and loop.sample is not None else None


def _rank(value: Value | None, depth: int = 0) -> int | None:
    if value is None or depth > 12:
        return None
    if isinstance(value, Op) and value.op in ("*", "/", "+", "-"):
        return max((r for a in value.args if (r := _rank(a, depth + 1)) is not None), default=None)
    if isinstance(value, Seq):
        return next((r for item in value.items if (r := _rank(item, depth + 1)) is not None), None)
    if not isinstance(value, Call):
        return None
    if value.name in ("cat", "concat", "stack") and value.args:
        inner = _rank(value.args[0], depth + 1)
        return inner + (value.name == "stack") if inner is not None else None
    if isinstance(value.func, Attr) and value.name == "to":
        return _rank(value.func.base, depth + 1)
    return _noise_rank(value)


def _noise_rank(value: Call) -> int | None:
    """The rank of noise, by the shape that it is drawn in."""
    if value.name not in (*_NOISE, "normal") or value.name == "randn_like":
        return None
    given = value.args[2:] if value.name == "normal" else value.args
    shape = given[0] if given else value.kwargs.get("size") or value.kwargs.get("shape")
    if isinstance(shape, Seq):
        return len(shape.items) if shape.exact and not any(isinstance(i, Elem) for i in shape.items) else None
    spread = any(isinstance(a, Elem) for a in given)
    return len(given) if len(given) > 1 and value.name == "randn" and not spread else None


def unpatchify(program: Program) -> Unpatchify | None:
    """Find how the decoded tensor is made from the sample's tokens."""
    record = decode_record(program)
    if record is None:
        return None
    for given in record.arguments:
        for node in walk(given):
            if isinstance(node, Call) and node.name == "einsum" and len(node.args) == 2:
                found = _from_einsum(node, given)
                if found is not None:
                    return found
    return None


def _from_einsum(node: Call, given: Value) -> Unpatchify | None:
    pattern, tensor = node.args
    if not (isinstance(pattern, Const) and isinstance(pattern.value, str) and "->" in pattern.value):
        return None
    inner = next((o for o in options(tensor) if isinstance(o, Call) and o.name in ("reshape", "view")), None)
    if inner is None:
        return None
    sizes = inner.args
    if len(sizes) == 1 and isinstance(sizes[0], Seq):
        sizes = sizes[0].items
    letters = pattern.value.replace(" ", "").partition("->")[0]
    if len(letters) != len(sizes):
        return None
    outer = next(
        (
            n
            for n in walk(given)
            if isinstance(n, Call)
            and n.name in ("reshape", "view")
            and isinstance(n.func, Attr)
            and n.func.base is node
        ),
        None,
    )
    return Unpatchify(pattern.value.replace(" ", ""), dict(zip(letters, sizes, strict=True)), inner, node, outer)


def grid_letters(found: Unpatchify) -> tuple[str, str, str, str, str] | None:
    """The letters (row, column, row in patch, column in patch, channel) of the pattern."""
    sides = found.pattern.split("->")
    single = [c for c in sides[0] if default_of(found.sizes.get(c)) == 1]
    # A patch of one token has sides of one as well: what is left out is what leaves a grid of patches.
    for count in range(len(single), -1, -1):
        grids = [letters for left_out in combinations(single, count) if (letters := _grid(sides, left_out))]
        if grids:
            return grids[0] if len(grids) == 1 else None
    return None


def _grid(sides: list[str], left_out: Sequence[str]) -> tuple[str, str, str, str, str] | None:
    left, right = ([c for c in side if c not in left_out] for side in sides)
    if len(left) != 5 or len(right) != 5:
        return None
    channel, row, row_in, column, column_in = right
    if {row, column} != set(left[:2]) or {row_in, column_in, channel} != set(left[2:]):
        return None
    return row, column, row_in, column_in, channel


def _layout(found: Unpatchify) -> str | None:
    """The mapping in the notation of einops, with p rows and q columns in a patch."""
    letters = grid_letters(found)
    if letters is None:
        return None
    names = dict(zip(letters, "hwpqc", strict=True))
    left = [names[c] for c in found.pattern.partition("->")[0] if c in names]
    tokens, channels = (" ".join(part) for part in (left[:2], left[2:]))
    return f"({tokens}) ({channels}) -> c (h p) (w q)"


def _patch(found: Unpatchify) -> Value | None:
    letters = grid_letters(found)
    return found.sizes[letters[2]] if letters is not None else None


# How large the initial noise is, as a multiple of unit noise.

_KEEPING = frozenset(("to", "float", "contiguous", "clone", "cpu"))


def _noise_scale(program: Program) -> dict[str, Fact]:
    """The product of the numbers that noise is multiplied with before the first turn; unknown where one is none."""
    loop = program.denoising
    if loop is None or loop.sample is None or loop.sample.init is None:
        return {}
    found = [_scale(option) for option in options(loop.sample.init)]
    first = found[0]
    if first is None or any(f is None or f[0] != first[0] for f in found):
        return {}
    return {
        "detail.latents.noise_scale": fact(
            first[0], first[1], "certain" if all(f is not None and f[2] for f in found) else "likely"
        )
    }


def _scale(value: Value) -> tuple[float, list[Evidence | None], bool] | None:
    """Factor of the noise in a value, the places that say so, and whether it is the same for everybody."""
    factor, places, fixed = 1.0, list[Evidence | None](), True
    for _ in range(16):
        value = without_reshaping(value)
        if isinstance(value, Call) and value.name in _NOISE:
            return factor, [*places, value.at], fixed
        if isinstance(value, Call) and isinstance(value.func, Attr) and value.name in _KEEPING:
            value = value.func.base
        elif isinstance(value, Op) and value.op in ("*", "/") and len(value.args) == 2:
            first, second = value.args
            left, right = default_of(first), default_of(second)
            if isinstance(right, (int, float)) and not isinstance(right, bool):
                factor = factor * right if value.op == "*" else factor / right
                value, given = first, second
            elif value.op == "*" and isinstance(left, (int, float)) and not isinstance(left, bool):
                factor, value, given = factor * left, second, first
            else:
                return None
            places += [given.at]
            fixed = fixed and not any(isinstance(n, (Conf, Param)) for n in walk(given))
        else:
            return None
    return None
