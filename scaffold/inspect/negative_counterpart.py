"""Finds the input of the unconditional prediction that replaces the conditional one's encoded prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scaffold.inspect.facts import Evidence
from scaffold.inspect.negative_text import Forms, other_words
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import Search, is_none, reach
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.turns import reshaped
from scaffold.inspect.program.values import Attr, Call, Carried, Choice, Elem, Item, Op, Param, Seq, Slice
from scaffold.inspect.questions.denoiser import find_denoiser
from scaffold.inspect.questions.prompt import is_tokenizer_call
from scaffold.inspect.request_text import RequestText
from scaffold.inspect.request_values import is_negative
from scaffold.source.values import External, Value

_ZEROS = frozenset(("zeros_like", "zeros", "new_zeros"))
_MAKERS = frozenset(("empty", "zeros", "ones", "new_empty", "new_zeros"))
_JOINED = frozenset(("torch.cat", "torch.concat", "torch.stack"))
_CASTS = frozenset(("to", "type", "float", "contiguous", "clone", "detach", "cuda"))
_OTHER = re.compile(r"mask|pos|rope|rotary|len")


def find_counterpart(program: Program, forms: Forms) -> tuple[str, list[Evidence | None]] | None:
    """``empty``, ``zeros`` or ``special_tokens``, if everything that was made of the prompt agrees."""
    loop, denoiser = program.denoising, find_denoiser(program)
    if loop is None or denoiser is None or not denoiser.record.bound or other_words(program, forms):
        return None
    calls = [
        r
        for r in program.trace.calls
        if loop.number in r.loops and r.bound and r.method == denoiser.record.method
        and getattr(r.func, "node", None) is getattr(denoiser.record.func, "node", None)
    ]  # fmt: skip
    encoded = {id(r.result) for r in program.trace.calls if is_tokenizer_call(r)}
    is_of_prompt = Search(_is_of_prompt, closed=_is_nothing)
    found: dict[str | None, list[Evidence | None]] = {}
    for name in dict.fromkeys(n for r in calls for n in r.bound):
        if _OTHER.search(name):
            continue
        terms = [(t, r) for r in calls if name in r.bound for t in _terms(r.bound[name], forms.silent[0])]
        others = [(t, r) for t, r in terms if not is_of_prompt(t)]
        if len(others) < len(terms):
            # An absent argument proves nothing: the call may take its text under another name.
            for term, record in [(t, r) for t, r in others if not is_none(t)]:
                found.setdefault(_kind(term, encoded), [term.at, record.at])
    kind, places = next(iter(found.items()), (None, []))
    return (kind, places) if kind is not None and len(found) == 1 else None


def _terms(value: Value, request: RequestText, depth: int = 0, row: bool = False) -> Iterator[Value]:
    joined = _is_join(value)
    # What one row of a batch is joined of are its tokens.
    parts = _parts(value, request) if depth < 24 and not (row and joined) else None
    if parts is None:
        yield value
    else:
        row = row or joined or isinstance(value, Seq)
        for part in parts:
            yield from _terms(part, request, depth + 1, row)


def _is_join(value: Value) -> bool:
    return isinstance(value, Call) and isinstance(value.func, External) and value.func.path in _JOINED


def _parts(value: Value, request: RequestText) -> list[Value] | None:
    """The alternatives of a value, or the rows of a batch that it joins; None where it is neither."""
    if isinstance(value, Choice):
        truth = request.holds(value.cond) if value.cond is not None and len(value.options) == 2 else None
        return value.options if truth is None else [value.options[0 if truth else 1]]
    if isinstance(value, Carried):
        return [value.init] if value.init is not None else None
    if isinstance(value, Seq) and value.items:
        return value.items
    if isinstance(value, Elem) and isinstance(value.source, Seq) and value.source.items:
        return value.source.items
    if isinstance(value, Op) and value.op == "+" and any(_is_list(arg) for arg in value.args):
        return value.args
    if not isinstance(value, Call):
        return None
    if isinstance(value.func, Attr) and value.name in _CASTS:
        return [value.func.base]
    inner = reshaped(value)
    if inner is not None:
        return [inner]
    along = value.argument(1, "dim", "axis")
    if _is_join(value) and value.args and (along is None or default_of(along) == 0) and isinstance(value.args[0], Seq):
        return value.args[0].items
    return None


def _is_list(value: Value, depth: int = 0) -> bool:
    if isinstance(value, Choice) and depth < 4:
        return any(_is_list(option, depth + 1) for option in value.options)
    return isinstance(value, Seq) or (isinstance(value, Carried) and isinstance(value.init, Seq))


def _is_of_prompt(node: Value) -> bool:
    return isinstance(node, Param) and node.root == "prompt" and not is_negative(node)


def _is_nothing(node: Value) -> bool:
    """Whether a tensor has only the shape of another, or is an empty part of it."""
    return (isinstance(node, Call) and node.name in _ZEROS) or _is_empty(node)


def _kind(value: Value, encoded: set[int]) -> str | None:
    if _is_empty(value):
        return "empty"
    if isinstance(value, Call) and value.name in _ZEROS:
        return "zeros"
    nodes = list(reach([value], lambda node: [] if _is_nothing(node) else node.parts()))
    if any(id(node) in encoded for node in nodes):
        # Words, which may have special tokens around them.
        return None
    named = any(isinstance(n, Call) and n.name == "convert_tokens_to_ids" for n in nodes)
    return (
        "special_tokens" if named or any(isinstance(n, Attr) and n.name.endswith("_token_id") for n in nodes) else None
    )


def _is_empty(value: Value) -> bool:
    """A list without items, a part of no length, or a tensor with an axis of length zero."""
    if isinstance(value, Seq):
        return value.exact and not value.items
    if isinstance(value, Item):
        keys = value.key.items if isinstance(value.key, Seq) else [value.key]
        return any(isinstance(k, Slice) and k.lower is None and default_of(k.upper) == 0 for k in keys)
    if isinstance(value, Call) and value.name in _MAKERS and value.args:
        shape = value.args[0].items if isinstance(value.args[0], Seq) else value.args
        return any(type(default_of(s)) is int and default_of(s) == 0 for s in shape)
    return False
