"""Finds the text encoded for the unconditional branch of a request without a negative prompt."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import reach, walk
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.values import Call, Op, Param, Seq
from scaffold.inspect.questions.prompt import is_tokenizer_call
from scaffold.inspect.request_items import chat_words
from scaffold.inspect.request_text import RequestText
from scaffold.inspect.request_values import CHAT, NEGATIVE, PROMPT, is_negative
from scaffold.source.syntax import walk_tree
from scaffold.source.values import Func, Value

_USER = ("prompt", "extra_args", "sampling_params", "request")
_KINDS = {"": "empty_string", " ": "space"}


@dataclass(frozen=True)
class Words:
    """What stands in the place of the user's words.

    ``kind`` is ``empty_string``, ``space`` or ``text``; ``text`` is the whole that is encoded, None where a chat
    template of the checkpoint's is put around it.
    """

    kind: str
    text: str | None
    places: tuple[Evidence | None, ...]


class Forms:
    """The forms of a request: without a negative prompt, as a dictionary or as text, and with one."""

    def __init__(self) -> None:
        self.silent = (RequestText(), RequestText(as_text=True))
        self.loud = RequestText(negative=True)

    def reached(self, record: CallRecord, request: RequestText) -> bool:
        """Whether a call may happen for a form of the request."""
        return all(request.holds(cond) in (None, truth) for cond, truth in record.conditions)


def find_words(program: Program, forms: Forms) -> Words | None:
    """Return the text, if all followed paths agree on it."""
    records = [(r, text) for r in program.trace.calls if (text := _text_of(r)) is not None]
    if len(records) < 2:
        return None
    said = _encoded(records, forms)
    handed = _handed(records, program, forms)
    if said is None or (handed is not None and handed.kind != said.kind):
        return handed if said is None else None
    return said


def _encoded(records: list[tuple[CallRecord, Value]], forms: Forms) -> Words | None:
    """From the calls of a tokenizer: those that the negative prompt goes to, and fixed text where the prompt went."""
    positives: dict[Evidence | None, set[str]] = {}
    for record, text in records:
        for request in forms.silent:
            said = _said(record, text, request)
            if said is not None and said.count(PROMPT) == 1 and forms.reached(record, request):
                positives.setdefault(record.at, set()).add(said)
    found: dict[tuple[str, str | None], CallRecord] = {}
    for record, text in records:
        loud = _said(record, text, forms.loud)
        is_negative = loud is not None and NEGATIVE in loud
        if not is_negative and (record.at not in positives or _is_of_user(text)):
            continue
        for request in forms.silent:
            said = _said(record, text, request)
            if said is None or PROMPT in said or not forms.reached(record, request):
                continue
            words = next((w for p in positives.get(record.at, ()) if (w := _between(said, p)) is not None), said)
            whole = None if _is_chat(record, text) else said
            found.setdefault((_KINDS.get(words, "text"), whole), record)
    kinds = {kind for kind, _ in found}
    if len(kinds) != 1:
        return None
    (kind, whole), record = next(iter(found.items()))
    return Words(kind, whole if len(found) == 1 else None, (record.at,))


def _handed(records: list[tuple[CallRecord, Value]], program: Program, forms: Forms) -> Words | None:
    """From a function that is given the prompt in one call and something that is not a prompt in another."""
    encoders = {name for record, _ in records for name in record.callers}
    given: dict[tuple[int, str], list[tuple[CallRecord, Value]]] = {}
    for record in program.trace.calls:
        if isinstance(record.func, Func) and record.bound and record.func.name in encoders:
            for name, value in record.bound.items():
                given.setdefault((id(record.func.node), name), []).append((record, value))
    found: dict[str, CallRecord] = {}
    for calls in given.values():
        if len(calls) < 2 or not any(forms.silent[0].text(value) == PROMPT for _, value in calls):
            continue
        if any(isinstance(r.func, Func) and _puts_in(r.func.node) for r, _ in calls[:1]):
            continue
        for record, value in calls:
            for said in _unset(record, value, forms):
                found.setdefault(_KINDS.get(said, "text"), record)
    if len(found) != 1:
        return None
    kind, record = next(iter(found.items()))
    return Words(kind, None, (record.at,))


def _unset(record: CallRecord, value: Value, forms: Forms) -> list[str]:
    """What a value says without a negative prompt: a fixed text, or one that a negative prompt would replace."""
    said = [s for request in forms.silent if (s := request.text(value)) is not None and forms.reached(record, request)]
    said = [s for s in said if PROMPT not in s]
    if said and _is_of_user(value):
        loud = forms.loud.text(value)
        return said if loud is not None and NEGATIVE in loud else []
    return said


def _puts_in(node: ast.AST) -> bool:
    """Whether a function puts text of its own in the place of what it is given."""
    for inner in walk_tree(node):
        parts = inner.values if isinstance(inner, ast.BoolOp) else []
        parts = [inner.body, inner.orelse] if isinstance(inner, ast.IfExp) else parts
        if any(isinstance(p, ast.Constant) and isinstance(p.value, str) for p in parts):
            return True
    return False


def _text_of(record: CallRecord) -> Value | None:
    if not isinstance(record.result, Call) or not is_tokenizer_call(record):
        return None
    return next(iter(record.arguments), None)


def _said(record: CallRecord, text: Value, request: RequestText) -> str | None:
    return chat_words(request.of(text)) if record.method == CHAT else request.text(text)


def text_parts(text: Value | None) -> list[Value]:
    """Return the parts of a text, without the number of repetitions."""

    def inner(node: Value) -> list[Value]:
        parts = node.parts()
        repeats = isinstance(node, Op) and node.op == "*"
        return [p for p in parts if repeats and isinstance(p, Seq)] or parts

    return list(reach([text] if text is not None else [], inner))


def _is_of_user(text: Value) -> bool:
    return any(isinstance(n, Param) and n.root in _USER for n in text_parts(text))


def other_words(program: Program, forms: Forms) -> bool:
    """Whether any text may be encoded that is not the request's."""
    for record in program.trace.calls:
        text = _text_of(record)
        if text is None or not any(forms.reached(record, request) for request in forms.silent):
            continue
        given = [n for n in text_parts(text) if isinstance(n, Param) and n.root in _USER]
        if not given or any(is_negative(n) for n in given):
            return True
    return False


def _is_chat(record: CallRecord, text: Value) -> bool:
    return record.method == CHAT or any(isinstance(n, Call) and n.name == CHAT for n in walk(text))


def _between(said: str, positive: str) -> str | None:
    before, _, behind = positive.partition(PROMPT)
    fits = said.startswith(before) and said.endswith(behind) and len(said) >= len(before) + len(behind)
    return said[len(before) : len(said) - len(behind)] if fits else None
