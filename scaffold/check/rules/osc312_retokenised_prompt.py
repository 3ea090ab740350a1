"""The rollout turns token ids back into text without checking that the text gives the same ids.

Training sees the ids that the preprocessor wrote; the pipeline encodes the text once more. Decoding loses what the
tokenizer normalises (spaces, special tokens, merged bytes), so some prompts reach rollout and training as different
tokens, and their log-probs differ before any weight has changed.

    prompt["prompt"] = self.tokenizer.decode(prompt["prompt_token_ids"])

Instead: hand the ids to the pipeline, or encode the decoded text and stop where the ids are not the same.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import dotted
from scaffold.check.model.dataflow import origin
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC312"
NAME = "retokenised-prompt"
SEVERITY = "warning"
CHECKLIST = ("R5", "pitfall 31")
APPLIES = Applies(objective="policy_gradient")
HELP = "encode the decoded text again and raise where the ids differ"
_DECODING = {"decode", "batch_decode", "convert_tokens_to_string"}
_ENCODING = {"encode", "encode_plus", "batch_encode_plus", "__call__", "convert_tokens_to_ids"}


def check(package: Package) -> Hits:
    """Look for decoded prompts, and for a comparison that refuses those that do not come back."""
    side = side_of(package, "rollout")
    if any(_compares(side, function) for function in side.functions):
        return
    for function in side.functions:
        for call in function.calls:
            if not _of_tokenizer(call, _DECODING):
                continue
            given = {word for value in call.args for word in origin(side, function, value).words}
            if any("prompt" in word for word in given):
                text = "the prompt is decoded here, and nothing compares what it is encoded to with the ids"
                yield Hit(function.file, call, text)


def _of_tokenizer(call: ast.Call, names: set[str]) -> bool:
    owner = dotted(call.func) or ""
    return owner.rpartition(".")[2] in names and any(word in owner.lower() for word in ("tokenizer", "processor"))


def _counts(node: ast.Compare) -> bool:
    """Whether a comparison asks how many there are, or whether there is anything, and not which."""
    counted = any(ast.unparse(side).startswith("len(") for side in (node.left, *node.comparators))
    return counted or isinstance(node.ops[0], (ast.Is, ast.IsNot))


def _compares(side: Side, function: FunctionModel) -> bool:
    """Whether a function compares encoded text with something, and stops or answers by it."""
    index = function.file.index
    tests: list[ast.expr] = [node for node in index.nodes(ast.Compare, function.node) if not _counts(node)]
    tests += [
        c for c in function.calls if isinstance(c.func, ast.Attribute) and c.func.attr in ("equal", "array_equal")
    ]
    for test in tests:
        acts = any(
            isinstance(outer, (ast.Assert, ast.Return))
            or (isinstance(outer, ast.If) and (index.nodes(ast.Raise, outer) or index.nodes(ast.Return, outer)))
            or (isinstance(outer, ast.Assign) and index.nodes(ast.Raise, function.node))
            for outer in index.ancestors(test)
        )
        for _, node in origin(side, function, test).calls() if acts else ():
            if _of_tokenizer(node, _ENCODING) or "tokenizer" in (dotted(node.func) or "").rpartition(".")[2].lower():
                return True
    return False


FAILING = (
    Example(
        "decoded, and handed on",
        rollout=[
            (
                "self.tokenizer.decode(ids, skip_special_tokens=False)",
                "«self.tokenizer.decode(ids, skip_special_tokens=False)»",
            ),
            ("if self.tokenizer.encode(decoded, add_special_tokens=False) != ids[1:-1]:", "if not decoded:"),
        ],
    ),
)
PASSING = (
    Example(
        "blanks left as they are",
        rollout=("skip_special_tokens=False)\n", "skip_special_tokens=False, clean_up_tokenization_spaces=False)\n"),
    ),
)
