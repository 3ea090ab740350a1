"""The rollout turns token ids back into text without checking that the text gives the same ids.

Training sees the ids that the preprocessor wrote; the pipeline encodes the text once more. Decoding loses what the
tokenizer normalises (spaces, special tokens, merged bytes), so some prompts reach rollout and training as different
tokens, and their log-probs differ before any weight has changed.

    prompt["prompt"] = self.tokenizer.decode(prompt["prompt_token_ids"])

Instead: hand the ids to the pipeline, or encode the decoded text and stop where the ids are not the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name, dotted, keyword
from scaffold.check.model.dataflow import origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.settled import settled
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
_SEEKING = {
    "removeprefix",
    "removesuffix",
    "partition",
    "rpartition",
    "split",
    "rsplit",
    "startswith",
    "endswith",
    "find",
    "index",
}
_LETTERS = {"lower", "upper", "title", "capitalize", "casefold", "swapcase"}
_TRIMMING = {"strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "replace"}
_CLEAN = "clean_up_tokenization_spaces"
_NORMALISING = {"unicodedata.normalize", "re.sub", "html.unescape", "textwrap.dedent", "ftfy.fix_text"}
_SAME = {"equal", "array_equal", "allclose"}


def check(package: Package) -> Hits:
    """Look for decoded prompts, and for a comparison that refuses those that do not come back."""
    side = side_of(package, "rollout")
    for function in side.functions:
        yield from _cleaned(package, side, function)
        yield from _markers(package, side, function)
        yield from _rewritten(package, side, function)
    if any(_compares(side, function) for function in side.functions):
        return
    for function in side.functions:
        for call in function.calls:
            if _of_tokenizer(call, _DECODING) and _is_prompt(side, function, call):
                yield Hit(
                    function.file,
                    call,
                    "the prompt is decoded here, and nothing compares what it is encoded to with the ids",
                )


def _cleaned(package: Package, side: Side, function: FunctionModel) -> Hits:
    """Look for blanks that the tokenizer is told to take out of the text: before stops, and around contractions."""
    text = "the text loses blanks that the prompt has, and is encoded to other ids"
    help = f"decode with {_CLEAN}=False"
    if function.file not in package.files:
        return
    for call in function.calls:
        given = keyword(call, _CLEAN)
        if given is not None and settled(function.file, given, package.files) is True:
            if not _of_tokenizer(call, _DECODING) or _is_prompt(side, function, call):
                yield Hit(function.file, given, text, help)
        target = function.file.qualified(call.func) or ""
        if target in _NORMALISING or attribute_name(call) in ("expandtabs", "clean_up_tokenization"):
            decoded = [node for _, node in origin(side, function, call).calls() if _of_tokenizer(node, _DECODING)]
            same = any(attribute_name(c) == attribute_name(call) for f in package.preprocessors for c in _calls(f))
            if decoded and not same and _handed_on(side, function, call):
                yield Hit(
                    function.file, call, "the decoded text is changed here, and the data script encodes it as it is"
                )
    for node in function.file.index.nodes(ast.Assign, function.node):
        named = [t for t in node.targets if isinstance(t, ast.Attribute) and t.attr == _CLEAN]
        if named and settled(function.file, node.value, package.files) is True:
            yield Hit(function.file, node.value, text, help)


def _calls(file: PythonFile) -> list[ast.Call]:
    return file.index.nodes(ast.Call)


def _handed_on(side: Side, function: FunctionModel, call: ast.Call) -> bool:
    """Whether a text is what the function returns, through names perhaps."""
    values = [item.value for item in function.returns if item.value is not None]
    return any(node is call for value in values for _, node in origin(side, function, value).calls())


def _markers(package: Package, side: Side, function: FunctionModel) -> Hits:
    """Look for special tokens that are left out of the text and looked for in it."""
    for call in function.calls:
        skip = keyword(call, "skip_special_tokens") if _of_tokenizer(call, _DECODING) else None
        if skip is None or settled(function.file, skip, package.files) is not True:
            continue
        if not _is_prompt(side, function, call) or function.file not in package.files:
            continue
        sought = sorted(_sought(function))
        if sought:
            text = f"special tokens are left out of the text here, and {sought[0]!r} is looked for in it"
            yield Hit(function.file, skip, text, "decode with skip_special_tokens=False")


def _rewritten(package: Package, side: Side, function: FunctionModel) -> Hits:
    """Look for decoded text that is returned with other blanks or letters, without a look at its ids."""
    for call in function.calls:
        name = attribute_name(call)
        changes = name in _LETTERS or (name == "join" and _squeezes(function, call))
        if not changes or function.file not in package.files:
            continue
        prepared = any(attribute_name(c) == name for f in package.preprocessors for c in f.index.nodes(ast.Call))
        if not _returned(function, call) or (prepared and name != "join") or (name == "join" and _splits(package)):
            continue
        decoded = [node for _, node in origin(side, function, call).calls() if _of_tokenizer(node, _DECODING)]
        tests = [(f, test) for f in side.functions for test in _tests(f)]
        if decoded and not any(node is call for f, test in tests for _, node in origin(side, f, test).calls()):
            text = "the decoded text is changed here, and the data script encodes it as it is"
            yield Hit(function.file, call, text, "hand the text on as it was encoded")


def _returned(function: FunctionModel, call: ast.Call) -> bool:
    """Whether a text is what the function returns, perhaps stripped: not what a test of it returns."""
    inner: ast.AST = call
    for outer in function.file.index.ancestors(call):
        if isinstance(outer, ast.Return):
            return True
        kept = isinstance(outer, ast.Call) and outer.func is inner and attribute_name(outer) in _TRIMMING
        if not kept and not (isinstance(outer, ast.Attribute) and outer.attr in _TRIMMING):
            return False
        inner = outer
    return False


def _squeezes(function: FunctionModel, call: ast.Call) -> bool:
    """Whether a call is ``" ".join(text.split())``."""
    part = call.args[0] if call.args else None
    plain = isinstance(part, ast.Call) and attribute_name(part) == "split" and not part.args and not part.keywords
    return plain and isinstance(call.func, ast.Attribute) and isinstance(function.file.value(call.func.value), str)


def _splits(package: Package) -> bool:
    return any(
        attribute_name(call) in ("split", "sub") for f in package.preprocessors for call in f.index.nodes(ast.Call)
    )


def _sought(function: FunctionModel) -> set[str]:
    """Return the special tokens that a function looks for in a text."""
    index = function.file.index
    found: set[str] = set()
    given = [item for call in function.calls if attribute_name(call) in _SEEKING for item in call.args]
    given += [
        node.left for node in index.nodes(ast.Compare, function.node) if isinstance(node.ops[0], (ast.In, ast.NotIn))
    ]
    for item in given:
        value = function.file.value(item)
        if isinstance(value, str) and value.startswith("<") and ">" in value:
            found.add(value)
    return found


def _of_tokenizer(call: ast.Call, names: set[str]) -> bool:
    target = call.func
    if not isinstance(target, ast.Attribute) or target.attr not in names:
        return False
    owner = dotted(target.value) or ""
    return any(word in owner.lower() for word in ("tokenizer", "processor"))


def _is_prompt(side: Side, function: FunctionModel, call: ast.Call) -> bool:
    """Whether what is decoded comes from the request's prompt."""
    words = {word for value in call.args for word in origin(side, function, value).words}
    return any("prompt" in word for word in words)


def _compares(side: Side, function: FunctionModel) -> bool:
    """Whether a function compares encoded text with something, and acts on it."""
    for test in _tests(function):
        for _, node in origin(side, function, test).calls():
            named = dotted(node.func) or ""
            if _of_tokenizer(node, _ENCODING) or "tokenizer" in named.rpartition(".")[2].lower():
                return True
    return False


def _tests(function: FunctionModel) -> Iterator[ast.expr]:
    """Yield comparisons whose outcome stops the request, or is returned."""
    index = function.file.index
    tests: list[ast.Compare | ast.Call] = [*index.nodes(ast.Compare, function.node), *function.calls]
    for node in tests:
        if isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Attribute) and node.func.attr in _SAME):
                continue
        elif not isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            continue
        for outer in index.ancestors(node):
            if isinstance(outer, (ast.Assert, ast.Return)):
                yield node
            elif isinstance(outer, ast.If) and index.contains(outer.test, node):
                branches = [*outer.body, *outer.orelse]
                if any(index.nodes(kind, part) for part in branches for kind in (ast.Raise, ast.Return)) or any(
                    isinstance(part, (ast.Raise, ast.Return)) for part in branches
                ):
                    yield node
            elif isinstance(outer, ast.Assign):
                # ``same = a == b``, tested later.
                names = [target.id for target in outer.targets if isinstance(target, ast.Name)]
                stops = [item.test for item in index.nodes(ast.If, function.node) if index.nodes(ast.Raise, item)]
                stops += [item.test for item in index.nodes(ast.Assert, function.node)]
                if any(isinstance(n, ast.Name) and n.id in names for stop in stops for n in index.walk(stop)):
                    yield node


FAILING = (
    Example(
        "blanks cleaned up",
        rollout=("skip_special_tokens=False)\n", "skip_special_tokens=False, clean_up_tokenization_spaces=«True»)\n"),
    ),
    Example(
        "cleaned up by a setting of the tokenizer",
        rollout=("token_ids)\n", "token_ids)\n        self.tokenizer.clean_up_tokenization_spaces = «True»\n"),
    ),
    Example(
        "without the tokens that are looked for", rollout=("skip_special_tokens=False)", "skip_special_tokens=«True»)")
    ),
)
PASSING = (
    Example(
        "blanks left as they are",
        rollout=("skip_special_tokens=False)\n", "skip_special_tokens=False, clean_up_tokenization_spaces=False)\n"),
    ),
    Example(
        "a test of the text in small letters",
        rollout=(
            " _decode_prompt",
            (
                " _asks(self, prompt) -> bool:\n"
                '        return self.tokenizer.decode(prompt["prompt_token_ids"]).lower().startswith("draw")\n'
                "\n    def _decode_prompt"
            ),
        ),
    ),
    Example(
        "without special tokens that nobody looks for",
        rollout=(
            'False)\n        decoded = decoded.removeprefix("<|im_start|>").removesuffix("<|im_end|>")',
            "True)\n        decoded = decoded",
        ),
    ),
)
