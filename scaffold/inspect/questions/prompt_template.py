"""The fixed text that a pipeline puts around the prompt, and the text that stands in its place in the other branch."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import walk
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.values import Const, Op, Param
from scaffold.inspect.questions.prompt import encode_calls, is_tokenizer_call
from scaffold.source.values import Value

ORDER = 14
KEYS = ("detail.prompt.prefix", "detail.prompt.suffix")


def answers(program: Program) -> dict[str, Fact]:
    """``prefix + prompt + suffix`` is encoded as one string; the settings of the request have their defaults."""
    facts: dict[str, Fact] = {}
    records = encode_calls(program)
    found = _around_prompt(_text(records[0])) if records else None
    if found is not None and any(found):
        places = [records[0].at, *_places(_text(records[0]))]
        facts["detail.prompt.prefix"] = fact(found[0], places)
        facts["detail.prompt.suffix"] = fact(found[1], places)
    return facts


def fixed_words(program: Program) -> Fact | None:
    """The one fixed text that is encoded where a prompt with text around it is."""
    records = encode_calls(program)
    around = _around_prompt(_text(records[0])) if records else None
    if around is None or not any(around):
        return None
    there = [r for r in program.trace.calls if r.at == records[0].at and is_tokenizer_call(r)]
    fixed = [record for record in there if _fixed_text(record) is not None]
    if len({_fixed_text(record) for record in fixed}) != 1:
        return None
    return fact(_fixed_text(fixed[0]), [fixed[0].at, *_places(_text(fixed[0]))])


def _text(record: CallRecord) -> Value | None:
    return next(iter(record.arguments), None)


def _around_prompt(text: Value | None) -> tuple[str, str] | None:
    """What stands before and behind the prompt; None where the text is not a plain sum with the prompt once in it."""
    pieces = _pieces(text)
    if pieces is None or pieces.count(None) != 1:
        return None
    place = pieces.index(None)
    before, after = pieces[:place], pieces[place + 1 :]
    return "".join(p for p in before if p is not None), "".join(p for p in after if p is not None)


def _pieces(text: Value | None) -> list[str | None] | None:
    """The summands of a text in order, None for the prompt."""
    if isinstance(text, Param) and text.root == "prompt":
        return [None]
    if isinstance(text, Op) and text.op in ("+", "format"):
        parts = [_pieces(arg) for arg in text.args]
        return None if None in parts else [piece for part in parts for piece in part or ()]
    if text is None or any(isinstance(n, Param) and n.root == "prompt" for n in walk(text)):
        return None
    known = default_of(text)
    return [known] if isinstance(known, str) else None


def _fixed_text(record: CallRecord) -> str | None:
    """Text that depends on no request at all."""
    text = _text(record)
    if text is None or any(isinstance(node, Param) for node in walk(text)):
        return None
    known = default_of(text)
    return known if isinstance(known, str) else None


def _places(text: Value | None) -> list[Evidence | None]:
    return [n.at for n in walk(text) if isinstance(n, Const) and isinstance(n.value, str)] if text else []
