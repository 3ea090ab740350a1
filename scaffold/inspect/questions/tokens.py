"""Special tokens: where their ids come from."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import Attr, Call, Conf, Const, Map, Obj
from scaffold.source.values import External, Value

ORDER = 8
KEYS = ("answers.tokens", "detail.tokens.text")
_LOOKUP = "convert_tokens_to_ids"
_SUFFIX = "_token_id"


@dataclass(frozen=True)
class Token:
    """One special token: how its id is found, the id and the text where the source gives them."""

    source: Literal["config", "tokenizer", "literal"]
    id: int | None
    text: str | None
    value: Value


def answers(program: Program) -> dict[str, Fact]:
    tokens = find_tokens(program)
    places: list[Evidence | None] = []
    for token in tokens.values():
        places.append(token.value.at)
    shown = {name: {"source": t.source, "id": t.id} for name, t in tokens.items()}
    texts = {name: t.text for name, t in tokens.items() if t.text is not None}
    return {
        "answers.tokens": fact(shown, places) if tokens else _none(program),
        "detail.tokens.text": fact(texts, [tokens[n].value.at for n in texts]),
    }


def _none(program: Program) -> Fact:
    """No special tokens, unless the pipeline's own files speak of one that was not found."""
    for cls, nodes in program.nodes:
        lines = program.source.read(cls.module.file).splitlines()[cls.node.lineno - 1 : cls.node.end_lineno]
        if not any(name in line for line in lines for name in (_SUFFIX, "_token", _LOOKUP)):
            continue
        for node in nodes:
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            if name.endswith((_SUFFIX, "_token")) or name == _LOOKUP:
                return Fact(None, (), "unknown")
    return Fact({}, (), "likely")


def find_tokens(program: Program) -> dict[str, Token]:
    """Named token ids that the pipeline holds, in tables or attributes."""
    found: dict[str, Token] = {}
    tables: list[Map] = []
    for name, held in program.pipeline.attrs.items():
        for option in options(held):
            if isinstance(option, Map):
                tables.append(option)
            elif (token := _token(option)) is not None:
                found.setdefault(name, token)
            elif isinstance(option, Const) and name.endswith(_SUFFIX) and type(option.value) is int:
                found.setdefault(name, Token("literal", option.value, None, option))
            elif isinstance(option, Obj) and option.root is None and option.ready:
                tables.extend(o for v in option.attrs.values() for o in options(v) if isinstance(o, Map))
    for table in tables:
        found.update({k: v for k, v in _from_table(table).items() if k not in found})
    for record in program.trace.calls:
        for name, argument in record.bound.items():
            if name.endswith(_SUFFIX) and not any(t.value is argument for t in found.values()):
                for option in options(argument):
                    if (token := _token(option)) is not None:
                        found.setdefault(name, token)
    return found


def _from_table(table: Map) -> dict[str, Token]:
    known = {k: t for k, v in table.items.items() if isinstance(k, str) for o in options(v) if (t := _token(o))}
    named = sum(1 for k in table.items if isinstance(k, str) and k.endswith(_SUFFIX))
    if not known and not named:
        return {}
    for key, value in table.items.items():
        # A plain number beside looked-up ids is an id written out.
        if isinstance(key, str) and key not in known and isinstance(value, Const) and type(value.value) is int:
            known[key] = Token("literal", value.value, None, value)
    return {k: known[k] for k in table.items if k in known}


def _token(value: Value) -> Token | None:
    if isinstance(value, Call) and value.name == _LOOKUP and value.args:
        text = default_of(value.args[0])
        return Token("tokenizer", None, text if isinstance(text, str) else None, value)
    if isinstance(value, Attr) and value.name.endswith(_SUFFIX) and _is_tokenizer(value.base):
        return Token("tokenizer", None, None, value)
    if isinstance(value, Conf) and value.path and ("token" in value.path[-1] or value.path[-1].endswith("_id")):
        known = default_of(value)
        return Token("config", known if type(known) is int else None, None, value)
    return None


def _is_tokenizer(value: Value) -> bool:
    for option in options(value):
        if isinstance(option, Call):
            named = option.func.base if isinstance(option.func, Attr) else option.func
            if isinstance(named, External) and "Tokenizer" in named.path:
                return True
    return False
