"""What the unconditional branch is given when the user gives no negative prompt."""

from __future__ import annotations

import re

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.guidance import as_guidance, region_parts
from scaffold.inspect.negative_counterpart import find_counterpart
from scaffold.inspect.negative_text import Forms, find_words, text_parts
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, reach, same
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import Choice, Param
from scaffold.inspect.questions.cfg import answers as guidance_answers
from scaffold.inspect.questions.prompt import encode_calls
from scaffold.inspect.questions.prompt_template import fixed_words
from scaffold.inspect.request_text import RequestText
from scaffold.source.values import Value

ORDER = 15
KEYS = ("detail.negative.kind", "detail.negative.keys", "detail.negative.text")
_NEGATIVE = re.compile(r"neg|uncond")


def answers(program: Program) -> dict[str, Fact]:
    """``kind`` is ``none`` (no such branch), ``empty`` (nothing, or no tokens), ``empty_string``, ``space``, ``text``
    (a fixed one), ``zeros`` or ``special_tokens``; ``text`` is the whole fixed text that is encoded."""
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
    else:
        facts.update(_by_what_is_said(program, fixed, branches is not None))
    return facts


def _by_what_is_said(program: Program, fixed: Fact | None, guided: bool) -> dict[str, Fact]:
    forms = Forms()
    combined = _needs_words(program, forms)
    if combined:
        return {"detail.negative.kind": fact("none", combined)}
    words = find_words(program, forms)
    if words is not None:
        facts = {"detail.negative.kind": fact(words.kind, words.places)}
        if words.kind == "text" and words.text is not None and fixed is None:
            facts["detail.negative.text"] = fact(words.text, words.places)
        return facts
    if fixed is not None:
        return {"detail.negative.kind": fact("text", fixed.evidence)}
    found = find_counterpart(program, forms) if guided else None
    return {"detail.negative.kind": fact(*found)} if found is not None else {}


def _by_key(program: Program) -> tuple[dict[str, Fact], list[Evidence | None] | None]:
    """The keys that a negative prompt is read under, and the places where nothing at all is encoded without one."""
    for record in encode_calls(program):
        text = next(iter(record.arguments), None)
        params = [n for n in text_parts(text) if isinstance(n, Param) and n.root in ("prompt", "extra_args")]
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


def _needs_words(program: Program, forms: Forms) -> list[Evidence | None]:
    """Where the predictions are combined, if that is only done with a negative prompt; else nothing."""
    loop = program.denoising
    if loop is None or loop.model_output is None:
        return []
    if any(_combinations(loop.model_output, silent) for silent in forms.silent):
        return []
    return [node.at for node in _combinations(loop.model_output, forms.loud)]


def _combinations(output: Value, request: RequestText) -> list[Value]:
    """The combinations that are left when the conditions that a form of the request decides are decided."""

    def inner(node: Value) -> list[Value]:
        truth = request.holds(node.cond) if isinstance(node, Choice) and node.cond is not None else None
        if isinstance(node, Choice) and truth is not None and len(node.options) == 2:
            return [node.options[0 if truth else 1]]
        return region_parts(node)[::-1]

    return [node for node in reach([output], inner) if as_guidance(node) is not None]
