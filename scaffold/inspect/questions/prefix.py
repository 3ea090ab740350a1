"""What the decoder has in its cache before the loop, where a request brings images: one call of it for each part."""

from __future__ import annotations

from typing import Any

from scaffold.inspect.facts import UNKNOWN, Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import Search, is_none, options, walk
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.turns import is_sample, is_turn
from scaffold.inspect.program.values import Call, Const, Obj, Op, Param, Seq
from scaffold.inspect.questions.denoiser import find_denoiser, given_beside
from scaffold.inspect.questions.layers import repeated_layers
from scaffold.inspect.questions.position import PLACES
from scaffold.inspect.questions.position import answers as position_answers
from scaffold.inspect.questions.prompt import encode_calls
from scaffold.inspect.report import CONDITIONS, PREFIX
from scaffold.source.values import Value

ORDER = 17
KEYS = (PREFIX,)


def answers(program: Program) -> dict[str, Fact]:
    """Return the facts of ``KEYS``."""
    return {**_prefix(program), **_reference(program)}


def _prefix(program: Program) -> dict[str, Fact]:
    """``decoder``: its path; names of its arguments ``sequence``, ``positions`` and ``cached``; ``parts``, in order.

    A part is ``of`` latents, features or text; ``causal`` or not; ``image`` where it takes the way through the decoder
    that the loop's own latents take; ``place`` is ``one`` where all of its tokens share one, else ``counted``.
    """
    if not program.with_references:
        return {}
    decoder, path = _decoder(program)
    calls = [(i, r) for i, r in enumerate(program.trace.calls) if decoder is not None and _is_of(r, decoder)]
    cached = _told_apart(program, [given for _, r in calls if (given := r.named)])
    if decoder is None or cached is None:
        return {}
    table, encoded = _table(program), [r.result for r in encode_calls(program)]
    in_loop = next((r.named for r in program.trace.calls if _is(r.named.get(cached), False)), {})
    parts: list[dict[str, Any]] = []
    places: list[Evidence | None] = []
    names: dict[str, set[str]] = {"sequence": set(), "positions": set()}
    start = 0
    for index, record in calls:
        given = record.named
        causal = next((v for k, v in given.items() if "causal" in k and _is(v, True, False)), None)
        placed = [(k, kind) for k, v in given.items() if PLACES.search(k) and (kind := _place(v)) is not None]
        if not _is(given.get(cached), True) or causal is None or len(placed) != 1:
            continue  # it embeds tokens alone
        between, start = program.trace.calls[start:index], index
        of_text = any(node is e for value in given.values() for node in walk(value) for e in encoded)
        of_latents = any(option is one for r in between for option in options(r.receiver) for one in table)
        part = {
            "of": "text" if of_text else "latents" if of_latents else "features" if _brought(program, given) else None,
            "causal": _is(causal, True),
            "image": _routes(given) == _routes(in_loop),
            "place": placed[0][1],
        }
        names["positions"].add(placed[0][0])
        if not of_text:
            names["sequence"] |= {k for k, v in given.items() if isinstance(v, Call) and "sequence" in k}
        parts.append(part)
        places.append(program.trace.calls[index - 1].at)  # where the model around the decoder is called
        if of_text:
            break
    if not parts or any(len(found) != 1 for found in names.values()):
        return {}
    value = {"decoder": path, "cached": cached, **{k: found.pop() for k, found in names.items()}, "parts": parts}
    return {PREFIX: fact(value, places)}


def _decoder(program: Program) -> tuple[Obj | None, str]:
    """The module that holds the layers, and its path in the pipeline."""
    paths = {path for _, path in repeated_layers(program)}
    value: Value = program.pipeline
    if len(paths) != 1:
        return None, ""
    path = paths.pop().rpartition(".")[0]
    for name in path.split("."):
        value = program.execution.get_attr(value, name)
    return (value, path) if isinstance(value, Obj) else (None, "")


def _is_of(record: CallRecord, decoder: Obj) -> bool:
    return not record.loops and any(option is decoder for option in options(record.receiver))


def _is(value: Value | None, *wanted: bool) -> bool:
    return isinstance(value, Const) and isinstance(value.value, bool) and value.value in wanted


def _told_apart(program: Program, given: list[dict[str, Value]]) -> str | None:
    """The argument that is true wherever the cache is filled, and false in the denoiser's own call."""
    names = {name for values in given for name, value in values.items() if _is(value, True)}
    found = {n for n in names if "causal" not in n and any(_is(r.named.get(n), False) for r in program.trace.calls)}
    found = {name for name in found if all(_is(values[name], True) for values in given if name in values)}
    return found.pop() if len(found) == 1 else None


def _routes(given: dict[str, Value]) -> list[tuple[str, str]]:
    return [(k, v.value) for k, v in sorted(given.items()) if isinstance(v, Const) and isinstance(v.value, str)]


def _place(value: Value) -> str | None:
    """Whether positions are one number repeated, or counted; None where they are not positions."""
    if is_none(value):
        return None
    for node in walk(value):
        if isinstance(node, Op) and node.op == "*" and isinstance(node.args[0], Seq) and len(node.args[0].items) == 1:
            return "one"
        if isinstance(node, Call) and node.name == "range" and len(node.args) == 2:
            return "counted"
    return None


def _table(program: Program) -> list[Value]:
    """The table of places of latents."""
    known, denoiser = position_answers(program).get("detail.position.attribute"), find_denoiser(program)
    for root in options(denoiser.receiver) if denoiser is not None else []:
        if known is not None and isinstance(root, Obj) and known.value in root.attrs:
            return options(root.attrs[known.value])
    return []


def _brought(program: Program, given: dict[str, Value]) -> bool:
    def of_media(value: Value) -> bool:
        return isinstance(value, Param) and (
            value.root == "media" or (value.root == "prompt" and program.execution.items.is_given(value.key))
        )

    search = Search(of_media)
    return any(search(value) for value in given.values())


# The use of a request's images; only answered for edits.


def _reference(program: Program) -> dict[str, Fact]:
    """``conditions``: arguments of the denoiser that the images reach."""
    return {CONDITIONS: _conditions(program)} if program.with_references else {}


def _conditions(program: Program) -> Fact:
    """Arguments of the denoiser's calls in the loop; of sample and time the size alone may come from an image."""
    denoiser, loop = find_denoiser(program), program.denoising
    if denoiser is None or loop is None:
        return UNKNOWN
    places: dict[str, Evidence | None] = {}

    def brought(value: Value) -> bool:
        if not isinstance(value, Param):
            return False
        return value.root == "media" or (value.root == "prompt" and program.execution.items.is_given(value.key))

    search = Search(brought, [id(loop.sample)] if loop.sample is not None else [])
    for record in program.trace.calls:
        if loop.number not in record.loops or record.method != denoiser.record.method:
            continue
        if record.receiver is not denoiser.record.receiver:
            continue
        for name, value in (record.named).items():
            of_size = is_turn(value, loop.number) or (loop.sample is not None and is_sample(value, loop.sample))
            if not of_size and search(value):
                places.setdefault(name, record.at)
    if not places and (beside := given_beside(program)) is not None:
        return fact(None, [beside], "unknown")
    return fact(list(places), list(places.values()) or [program.place(program.cls)], "likely")
