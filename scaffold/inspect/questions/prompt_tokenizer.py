"""Whether the tokenizer that a checkpoint is released with can have a chat template, by the text encoder beside it."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.source.syntax import walk_tree

ORDER = 19
KEYS = ("detail.prompt.chat_tokenizer",)
_HOLDERS = ("text_encoder", "tokenizer")
# Families of transformers that encode text and never chat: their tokenizers are released without a template.
_ENCODERS = ("T5", "UMT5", "MT5", "ByT5", "CLIP", "Siglip", "Bert", "Roberta", "XLMRoberta")


def answers(program: Program) -> dict[str, Fact]:
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
    return {KEYS[0]: fact(chats, [found[name] for name in known])}


def _holds_text(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr.startswith(_HOLDERS)


def _classes(value: ast.expr) -> list[str]:
    """Names of classes that are made or loaded in an expression."""
    calls = [node.func for node in walk_tree(value) if isinstance(node, ast.Call)]
    bases = [func.value if isinstance(func, ast.Attribute) else func for func in calls]
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
