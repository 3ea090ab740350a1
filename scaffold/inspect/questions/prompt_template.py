"""The fixed text that a pipeline puts around the prompt, and the text that stands in its place in the other branch."""

from __future__ import annotations

import ast
import json

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import walk
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.values import Const, Op, Param
from scaffold.inspect.questions.prompt import encode_calls, is_tokenizer_call
from scaffold.source.classes import ClassInfo
from scaffold.source.syntax import walk_tree
from scaffold.source.values import Value

ORDER = 14
KEYS = (
    "detail.prompt.prefix",
    "detail.prompt.suffix",
    "detail.prompt.chat_tokenizer",
    "detail.prompt.structured",
)


def answers(program: Program) -> dict[str, Fact]:
    """Return the facts of ``KEYS``."""
    return {**_prompt_template(program), **_prompt_tokenizer(program), **_structured_prompt(program)}


def _prompt_template(program: Program) -> dict[str, Fact]:
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


# Whether the tokenizer that a checkpoint is released with can have a chat template, by the text encoder beside it.

_HOLDERS = ("text_encoder", "tokenizer")
# Families of transformers that encode text and never chat: their tokenizers are released without a template.
_ENCODERS = ("T5", "UMT5", "MT5", "ByT5", "CLIP", "Siglip", "Bert", "Roberta", "XLMRoberta")


def _prompt_tokenizer(program: Program) -> dict[str, Fact]:
    """False where every class that the pipeline keeps as a text encoder or tokenizer is of such a family."""
    found: dict[str, Evidence] = {}
    for owner, nodes in program.nodes:
        for node in nodes:
            if isinstance(node, ast.Assign) and any(_holds_text(target) for target in node.targets):
                for name in _classes(node.value):
                    found.setdefault(name, program.place(owner, node))
    families = {name: _family(name) for name in found}
    known = [name for name, family in families.items() if family is not None]
    if not known:
        return {}
    chats = not all(families[name] in _ENCODERS for name in known)
    return {"detail.prompt.chat_tokenizer": fact(chats, [found[name] for name in known])}


def _holds_text(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr.startswith(_HOLDERS)


def _classes(value: ast.expr) -> list[str]:
    """Names of classes that are made or loaded in an expression, perhaps by a function that takes their loader."""
    nodes = list(walk_tree(value))
    bases = [node.func for node in nodes if isinstance(node, ast.Call)]
    bases += [node.value for node in nodes if isinstance(node, ast.Attribute)]
    return [base.id for base in bases if isinstance(base, ast.Name) and base.id[:1].isupper()]


def _family(name: str) -> str | None:
    """The model's name in that of one of its classes; None where a class tells nothing, such as ``AutoTokenizer``."""
    for ending in ("EncoderModel", "TextModelWithProjection", "TextModel", "TokenizerFast", "Tokenizer", "Model"):
        if name.endswith(ending):
            family = name.removesuffix(ending)
            return None if family in ("", "Auto") else family
    for ending in ("ForCausalLM", "ForConditionalGeneration"):
        if name.endswith(ending):
            return None if name.startswith("Auto") else name
    return None


# Whether a model is prompted with structured captions: objects of fields, written as JSON, in place of plain words.

_WORDS = ("PROMPT", "CAPTION")


def _structured_prompt(program: Program) -> dict[str, Fact]:
    """True where a text that the pipeline itself gives its model in place of a prompt is a JSON object.

    A model that was trained on captions of fields has its negative prompt in fields, too.
    """
    found = [place for owner in program.cls.mro for place in _objects(program, owner)]
    return {"detail.prompt.structured": fact(True, found)} if found else {}


def _objects(program: Program, owner: ClassInfo) -> list[Evidence]:
    places = []
    for node in program.source.tree(owner.module.file).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Constant):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        named = any(isinstance(t, ast.Name) and any(word in t.id.upper() for word in _WORDS) for t in targets)
        if named and isinstance(node.value.value, str) and _is_object(node.value.value):
            places.append(program.place(owner, node))
    return places


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
