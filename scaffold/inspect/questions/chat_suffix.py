"""The text appended to a chat template's output before encoding, and that of the unconditional branch."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.values import Attr, Call, Const, Map, Op, Param
from scaffold.source.syntax import walk_tree
from scaffold.source.values import Value

ORDER = 13
KEYS = ("detail.chat.suffix", "detail.chat.special_tokens", "detail.chat.negative_text", "detail.chat.holder")
_TEMPLATE = "apply_chat_template"


def answers(program: Program) -> dict[str, Fact]:
    """Texts in their order, whether special tokens are added around the whole, the text of the other branch, and the
    attribute of the pipeline whose chat template is used.

    A text that is an attribute of the tokenizer with a default beside it is the default, unless the source sets the
    attribute to something else.
    """
    facts: dict[str, Fact] = {}
    for record in program.trace.calls:
        if record.method != "encode" or not record.args:
            continue
        terms = _terms(record.args[0])
        if not (terms and isinstance(terms[0], Call) and terms[0].name == _TEMPLATE):
            continue
        content = _content(terms[0])
        if isinstance(content, Const) and isinstance(content.value, str):
            facts.setdefault("detail.chat.negative_text", fact(content.value, [content.at, record.at]))
        elif isinstance(content, Param) and content.root == "prompt" and "detail.chat.suffix" not in facts:
            facts |= _suffix(program, record, terms[1:])
            held = terms[0].func.base if isinstance(terms[0].func, Attr) else None
            name = program.attribute_of(held) if held is not None else None
            if name is not None:
                facts["detail.chat.holder"] = fact(name, [terms[0].at])
    return facts if "detail.chat.suffix" in facts else {}


def _suffix(program: Program, record: CallRecord, terms: list[Value]) -> dict[str, Fact]:
    texts = [_text(program, term) for term in terms]
    if any(text is None for text in texts):
        return {}
    facts = {"detail.chat.suffix": fact(texts, [record.at, *(t.at for t in terms)])}
    flag = record.kwargs.get("add_special_tokens")
    if isinstance(flag, Const) and isinstance(flag.value, bool):
        facts["detail.chat.special_tokens"] = fact(flag.value, [flag.at, record.at])
    return facts


def _terms(value: Value) -> list[Value]:
    if isinstance(value, Op) and value.op == "+":
        return _terms(value.args[0]) + _terms(value.args[1])
    return [value]


def _content(call: Call) -> Value | None:
    """The user's words in the only message of a chat."""
    messages = call.argument(0, "conversation")
    nodes = walk(messages) if messages is not None else []
    found = [n.items["content"] for n in nodes if isinstance(n, Map) and "content" in n.items]
    return found[0] if len(found) == 1 else None


def _text(program: Program, term: Value) -> str | None:
    repeat = 1
    if isinstance(term, Op) and term.op == "*":
        count = default_of(term.args[1])
        if type(count) is not int:
            return None
        term, repeat = term.args[0], count
    texts = {o.value for o in options(term) if isinstance(o, Const)}
    names = {o.name for o in options(term) if isinstance(o, Attr)}
    for name in names:
        texts |= _assigned(program, name)
    text = texts.pop() if len(texts) == 1 else None
    return text * repeat if isinstance(text, str) else None


def _assigned(program: Program, name: str) -> set[str]:
    """Texts that the pipeline's module puts into attributes of that name."""
    found = set()
    for node in walk_tree(program.source.tree(program.cls.module.file)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            if any(isinstance(t, ast.Attribute) and t.attr == name for t in node.targets):
                found.add(node.value.value)
    return found
