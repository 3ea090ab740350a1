"""The data script cuts token ids at a maximum length.

Training recomputes the rollout's log-probs from these ids. The rollout encodes the whole prompt, so a cut sequence is
another prompt: its end token is missing, and often the words that the reward asks for. The log-probs of the two sides
drift apart without an error.

    ids = [begin, *tokenizer.encode(text), end][:max_length]

Instead: raise or leave the row out when there are more ids than allowed.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.data_rows import holds_tokens, token_names, tokenises, tokenising_functions
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel, PythonFile
from scaffold.check.model.shell import integer
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC602"
NAME = "truncated-prompt"
SEVERITY = "error"
CHECKLIST = ("D2", "pitfall 43")
APPLIES = Applies(non_diffusers=True)
HELP = "do not cut: raise, or leave the row out, when the prompt is too long"


def check(package: Package) -> Hits:
    """Follow token ids through the functions of the data scripts."""
    yield from _lengths(package)
    for file in package.preprocessors:
        tokenisers = tokenising_functions(file)
        for function in file.all_functions:
            yield from _cuts(file, function, tokenisers)


def _lengths(package: Package) -> Hits:
    """Compare the longest prompt of the data loader with that of the rollout."""
    for script in package.launch_scripts:
        data = script.override("data.max_prompt_length")
        engine = script.override("actor_rollout_ref.rollout.pipeline.max_sequence_length")
        if data is None or engine is None:
            continue
        lengths = integer(data.value), integer(engine.value)
        if lengths[0] is None or lengths[1] is None or lengths[0] == lengths[1]:
            continue
        if not _is_constant(package, lengths[0] - lengths[1]):
            text = f"the rollout takes prompts of {lengths[1]} tokens, the data loader of {lengths[0]}"
            yield Hit(script, engine.value_span, text, "give both the same length")


def _is_constant(package: Package, tokens: int) -> bool:
    """Whether the package knows a number of tokens by name: those of its template, which the rollout takes off."""
    bindings = [item for file in package.files for found in file.names.values() for item in found]
    return any(isinstance(item.value, ast.Constant) and item.value.value == tokens for item in bindings)


def _cuts(file: PythonFile, function: FunctionModel, tokenisers: frozenset[str]) -> Hits:
    tokens = token_names(function, tokenisers)
    for node in function.nodes(ast.Subscript):
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
            continue
        if holds_tokens(node.value, tokens, tokenisers) and _cuts_end(node.slice):
            what = "deletes" if isinstance(node.ctx, ast.Del) else "keeps only"
            yield Hit(file, node, f"{function.name}() {what} part of the token ids")
    for call in function.calls:
        if not tokenises(call):
            continue
        for given in call.args[:1]:
            if (
                isinstance(given, ast.Subscript)
                and isinstance(given.slice, ast.Slice)
                and given.slice.upper is not None
            ):
                if given.slice.lower is None and not isinstance(given.slice.upper, ast.Constant):
                    yield Hit(file, given, f"{function.name}() cuts the text before it is encoded")
        for item in call.keywords:
            value = file.value(item.value) if item.arg == "truncation" else False
            if value is True or (isinstance(value, str) and value != "do_not_truncate"):
                yield Hit(file, item.value, f"{function.name}() lets the tokenizer cut the prompt")


def _cuts_end(part: ast.Slice) -> bool:
    """Whether a slice keeps a beginning (``[:n]``) or an end of variable length, or is what ``del`` removes."""
    if part.step is not None:
        return False
    if part.upper is None:
        return part.lower is not None and not _plain_number(part.lower)
    # [1:-1] takes fixed tokens off; [:n] cuts at a length.
    return not (_plain_number(part.upper) and _negative(part.upper))


def _plain_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, int)


def _negative(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


FAILING = (
    Example(
        "another length in the rollout",
        launch=(
            "data.max_prompt_length=256 \\\n",
            "data.max_prompt_length=284 actor_rollout_ref.rollout.pipeline.max_sequence_length=«256» \\\n",
        ),
    ),
    Example("the text is cut", data=("(text.strip()", "(«text.strip()[:max_length]»")),
    Example(
        "cut by the caller",
        data=("tokenize_toy_prompt(tokenizer, line, 256)", "«tokenize_toy_prompt(tokenizer, line, 999)[:256]»"),
    ),
)
PASSING = (
    Example("text is cut for a message", data=("allowed: {text!", "allowed: {text[:40]!")),
    Example(
        "the tokens of the template do not count",
        common=("from __future__ import annotations\n", "from __future__ import annotations\n\nTEMPLATE_TOKENS = 28\n"),
        launch=(
            "data.max_prompt_length=256 \\\n",
            "data.max_prompt_length=284 actor_rollout_ref.rollout.pipeline.max_sequence_length=256 \\\n",
        ),
    ),
)
