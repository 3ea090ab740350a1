"""What the denoiser's sequence is made of, and how its text attends."""

from __future__ import annotations

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, walk, walk_all
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import Call, Const, Elem, Seq
from scaffold.inspect.questions.denoiser import find_denoiser
from scaffold.inspect.questions.prompt import encode_calls
from scaffold.inspect.questions.tokens import find_tokens
from scaffold.source.values import Value

ORDER = 16
KEYS = ("detail.sequence", "detail.text_attention", "detail.step_execution")


def answers(program: Program) -> dict[str, Fact]:
    facts = {**_sequence(program), **(_text_attention(program) or _masked_text(program))}
    flag = program.execution.get_attr(program.pipeline, "supports_step_execution")
    if isinstance(flag, Const) and isinstance(flag.value, bool):
        facts["detail.step_execution"] = fact(flag.value, [flag.at])
    else:
        facts["detail.step_execution"] = fact(False, [program.place(program.cls)], "likely")
    return facts


def _sequence(program: Program) -> dict[str, Fact]:
    """Marker tokens before and behind a run of latents, by their places in the packed sequence."""
    denoiser = find_denoiser(program)
    if denoiser is None:
        return {}
    names = {id(t.value): name for name, t in find_tokens(program).items()}
    stop = {id(program.denoising.sample)} if program.denoising is not None else set()
    lists = [n for n in walk_all(denoiser.record.bound.values(), stop) if isinstance(n, Seq) and n.items]
    markers = next((s for s in lists if all(_name(i, names) for i in s.items)), None)
    start = next((n for s in lists for i in s.items if (n := _range_start(i)) is not None), None)
    if markers is None or start is None:
        return {}
    places = next(
        (
            s
            for s in lists
            if len(s.items) == len(markers.items) and s is not markers and any(type(_whole(i)) is int for i in s.items)
        ),
        None,
    )
    if places is None:
        return {}
    before: list[str | None] = []
    behind: list[str | None] = []
    for token, place in zip(markers.items, places.items, strict=True):
        at = _whole(place)
        (before if at is not None and at < start else behind).append(_name(token, names))
    text = ["text"] if encode_calls(program) else []
    return {"detail.sequence": fact([*text, *before, "latents", *behind], [markers.at, places.at])}


def _name(value: Value, names: dict[int, str]) -> str | None:
    return next((names[id(o)] for o in options(value) if id(o) in names), None)


def _whole(value: Value) -> int | None:
    return value.value if isinstance(value, Const) and type(value.value) is int else None


def _range_start(value: Value) -> int | None:
    source = value.source if isinstance(value, Elem) else None
    if isinstance(source, Call) and source.name == "range" and len(source.args) == 2:
        return _whole(source.args[0])
    return None


def _text_attention(program: Program) -> dict[str, Fact]:
    """Whether the call that takes the prompt's ids, outside the loop, asks for causal attention."""
    loop = program.denoising
    encoded = [r.result for r in encode_calls(program)]
    if loop is None or not encoded:
        return {}
    for record in program.trace.calls:
        if loop.number in record.loops:
            continue
        given = record.named
        flags = [v for k, v in given.items() if "causal" in k and isinstance(v, Const) and isinstance(v.value, bool)]
        if flags and any(n is e for v in given.values() for e in encoded for n in walk(v)):
            kind = "causal" if isinstance(flags[0], Const) and flags[0].value else "full"
            return {"detail.text_attention": fact(kind, [flags[0].at, record.at])}
    return {}


def _masked_text(program: Program) -> dict[str, Fact]:
    """``causal`` where the denoiser's mask hides what stands to the right; the image's rows may be freed from it."""
    denoiser = find_denoiser(program)
    given = (denoiser.record.named) if denoiser is not None else {}
    for node in walk_all(value for name, value in given.items() if "mask" in name):
        if isinstance(node, Call) and node.name == "triu" and default_of(node.argument(1, "diagonal")) == 1:
            return {"detail.text_attention": fact("causal", [node.at])}
    return {}
