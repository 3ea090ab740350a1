"""What the unconditional branch is given when the user gives no negative prompt, where the source says it plainly."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import Search, is_none, options, reach, same
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.turns import reshaped
from scaffold.inspect.program.values import Call, Carried, Choice, Elem, Op, Param, Seq
from scaffold.inspect.questions.cfg import answers as guidance_answers
from scaffold.inspect.questions.denoiser import find_denoiser
from scaffold.inspect.questions.prompt import encode_calls
from scaffold.inspect.questions.prompt_template import fixed_words
from scaffold.source.values import Value

ORDER = 15
KEYS = ("detail.negative.kind", "detail.negative.keys", "detail.negative.text")
_NEGATIVE = re.compile(r"neg|uncond")
# Of an argument's or a key's name: it holds no words.
_BESIDE = re.compile(r"mask|pos|rope|rotary|len|image|audio|video|multi_modal|latent")


def answers(program: Program) -> dict[str, Fact]:
    """``kind`` is ``none`` (no such branch), ``empty`` (nothing is encoded), ``text`` (fixed words) or ``zeros`` (in
    place of what the words are encoded to); ``text`` is the whole fixed text that is encoded."""
    facts, guarded = _by_key(program)
    fixed = fixed_words(program)
    if fixed is not None:
        facts["detail.negative.text"] = fixed
    branches = guidance_answers(program).get("answers.cfg.branches")
    if branches is not None and branches.value == 1:
        facts["detail.negative.kind"] = Fact("none", branches.evidence, branches.confidence)
        facts.pop("detail.negative.keys", None)
    elif guarded is not None:
        facts["detail.negative.kind"] = fact("empty", guarded)
    elif fixed is not None:
        facts["detail.negative.kind"] = fact("text", fixed.evidence)
    elif (zeros := _zeros(program)) is not None:
        facts["detail.negative.kind"] = fact("zeros", [zeros.at], "likely")
    return facts


def _by_key(program: Program) -> tuple[dict[str, Fact], list[Evidence | None] | None]:
    """The keys that a negative prompt is read under, and the places where nothing at all is encoded without one."""
    for record in encode_calls(program):
        text = next(iter(record.arguments), None)
        params = [n for n in _text_parts(text) if isinstance(n, Param) and n.root in ("prompt", "extra_args")]
        if text is None or not params or not all(_NEGATIVE.search(p.key) for p in params):
            continue
        guarded = any(truth and _is_of(cond, text) for cond, truth in record.conditions)
        places = [*(p.at for p in params), record.at]
        keys = list(dict.fromkeys(f"{p.root}.{p.key}" for p in params))
        skipped = guarded and default_of(text) in ("", None)
        return {"detail.negative.keys": fact(keys, places)}, places if skipped else None
    return {}, None


def _is_of(cond: Value, text: Value) -> bool:
    return same(cond, text) or any(same(c, t) for c in options(cond) for t in options(text))


def _text_parts(text: Value | None) -> list[Value]:
    """Return the parts of a text, without the number of repetitions."""

    def inner(node: Value) -> list[Value]:
        parts = node.parts()
        repeats = isinstance(node, Op) and node.op == "*"
        return [p for p in parts if repeats and isinstance(p, Seq)] or parts

    return list(reach([text] if text is not None else [], inner))


def _zeros(program: Program) -> Value | None:
    """The zeros that stand, in every argument that words are encoded to, in the place of these words."""
    denoiser, loop = find_denoiser(program), program.denoising
    if denoiser is None or loop is None or any(not _is_the_prompts(record) for record in encode_calls(program)):
        return None
    calls = [
        r for r in program.trace.calls if loop.number in r.loops and r.method == denoiser.record.method and r.bound
    ]
    of_prompt = Search(lambda node: isinstance(node, Param) and node.root == "prompt", closed=_is_zeros)
    zeros: list[Value] = []
    for name in dict.fromkeys(name for record in calls for name in record.bound if not _BESIDE.search(name)):
        rows = [row for record in calls if name in record.bound for row in _rows(record.bound[name])]
        others = [row for row in rows if not of_prompt(row) and not is_none(row)]
        if any(map(of_prompt, rows)):
            if not all(map(_is_zeros, others)):
                return None
            zeros += others
    return zeros[0] if zeros else None


def _is_the_prompts(record: CallRecord) -> bool:
    """Whether what is encoded is what the request asks for, and nothing else may be."""
    given = [n for n in _text_parts(next(iter(record.arguments), None)) if isinstance(n, Param)]
    asked = [n for n in given if n.root in ("prompt", "extra_args")]
    return bool(asked) and not any(_NEGATIVE.search(n.key) for n in asked)


def _is_zeros(value: Value) -> bool:
    return isinstance(value, Call) and value.name == "zeros_like"


def _rows(value: Value, depth: int = 0) -> Iterator[Value]:
    """The alternatives of a value, and what its batch is made of."""
    parts: list[Value] = []
    if isinstance(value, Choice):
        parts = value.options
    elif isinstance(value, Seq) or (isinstance(value, Op) and value.op == "+"):
        parts = value.parts()
    elif isinstance(value, Carried) and value.init is not None:
        parts = [value.init]
    elif isinstance(value, Elem) and isinstance(value.source, Seq):
        parts = value.source.items
    elif isinstance(value, Call) and (inner := reshaped(value)) is not None:
        parts = [inner]
    elif isinstance(value, Call) and value.name in ("cat", "stack") and value.args and isinstance(value.args[0], Seq):
        along = value.argument(1, "dim", "axis")
        parts = value.args[0].items if along is None or default_of(along) == 0 else []
    if not parts or depth > 24:
        yield value
    for part in parts if depth <= 24 else []:
        yield from _rows(part, depth + 1)
