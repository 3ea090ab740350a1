"""The data script puts other markers around a prompt than the rollout adapter knows.

The data script writes the ids that training reads, begin and end marker included. The rollout adapter turns ids into
text for the pipeline, which puts its own markers around it, and takes the data's off again. A marker that only one
side knows stays in the text, is encoded once more, and the two sides work on different prompts. The same comes of ids
of a whole chat, of special tokens that the tokenizer adds, of padding, and of text that is changed or not stripped,
where ``scaffold.toml`` records that the pipeline does otherwise.

    ids = [tok("<|im_start|>"), *ids, tok("<|endoftext|>")]      # the rollout strips <|im_end|>

Instead: use the markers of the pipeline on both sides, and encode as it does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import argument, attribute_name, has_unpacking
from scaffold.check.model.data_rows import holds_tokens, token_names, tokenises, tokenising_functions
from scaffold.check.model.follow import follow
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.prompt_markers import MARKER, own_tokens, rollout_markers, taken_at_both_ends, taken_off
from scaffold.check.model.prompt_padding import filled_up
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.model.streams import root_name
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC603"
NAME = "mismatched-prompt-marker"
SEVERITY = "error"
CHECKLIST = ("D2", "pitfall 31")
APPLIES = Applies(non_diffusers=True)
_CUTTING = {"partition", "rpartition", "split", "rsplit", "replace", "strip", "rstrip", "lstrip"}


def check(package: Package) -> Hits:
    """Compare the markers around token ids with those in the code of the rollout adapter."""
    known = set(rollout_markers(package))
    if not known:
        return
    yield from _one_end(package)
    for file in package.preprocessors:
        tokenisers = tokenising_functions(file)
        for function in file.all_functions:
            for marker, node in _added(file, function, tokenisers):
                if marker not in known:
                    text = f"{marker!r} is put around the prompt, the rollout adapter knows {', '.join(sorted(known))}"
                    yield Hit(file, node, text, "use the same markers on both sides")
            yield from _lacking(package, file, function, tokenisers)
            yield from _changed(package, file, function)
            yield from _chats(package, file, function)
            if function.name in tokenisers and "tok" in function.name and _unmarked(package, file, tokenisers):
                taken = taken_at_both_ends(package)
                text = f"{function.name}() puts no markers around the prompt, the rollout adapter takes {taken} off"
                yield Hit(file, function.node, text, "put the same markers around the prompt as the pipeline")
            if function.name in tokenisers:
                yield from _specials(package, file, function)
                yield from _filled(package, file, function)


def _one_end(package: Package) -> Hits:
    """Look for a rollout that takes one marker off, where the data puts one at each end."""
    for adapter in package.rollout_adapters:
        ends = {method: set(taken_off(adapter.file, method)) for method in ("removeprefix", "removesuffix")}
        if sum(map(bool, ends.values())) != 1 or not any(_both_ends(file) for file in package.preprocessors):
            continue
        method, other = sorted(ends, key=lambda name: not ends[name])
        where = "end" if other == "removesuffix" else "beginning"
        for call in adapter.file.index.nodes(ast.Call):
            given = call.args[0] if attribute_name(call) == method and len(call.args) == 1 else None
            if given is None or not MARKER.fullmatch(str(adapter.file.value(given))):
                continue
            if not _cut_otherwise(adapter.file, call):
                text = f"only this marker is taken off; the data has one at the {where} of the ids as well"
                yield Hit(adapter.file, call, text, f"take the other off with {other}()")
                break


def _cut_otherwise(file: PythonFile, removal: ast.Call) -> bool:
    """Whether the text loses more by another method, or the ids an end before they become text."""
    name = root_name(removal)
    for call in file.index.nodes(ast.Call):
        method = attribute_name(call)
        if method in ("decode", "batch_decode") and call.args and isinstance(call.args[0], ast.Subscript):
            return True
        if method in _CUTTING and call.args and isinstance(call.func, ast.Attribute) and root_name(call.func) == name:
            if MARKER.fullmatch(str(file.value(call.args[0]))):
                return True
    return False


def _both_ends(file: PythonFile) -> bool:
    tokenisers = tokenising_functions(file)
    return any(
        len(node.elts) == 3 and isinstance(node.elts[1], ast.Starred)
        for function in file.all_functions
        for node in _marked_lists(file, function, tokenisers)
    )


def _changed(package: Package, file: PythonFile, function: FunctionModel) -> Hits:
    """Look for text that is changed, or not stripped, before it is encoded, where the pipeline is known to strip."""
    if recorded(package, "prompt", "strip") != "true":
        return
    for call in function.calls:
        given = call.args[0] if call.args else None
        if attribute_name(call) != "encode" or not tokenises(call) or given is None:
            continue
        text = ast.unparse(follow(file, given))
        if isinstance(given, ast.Name) and given.id in function.parameters and "text" in given.id:
            yield Hit(file, given, "the text is not stripped, the pipeline strips it", "write .strip()")
        elif any(part in text for part in (".lower()", ".upper()", ".title()", ".capitalize()")):
            yield Hit(file, given, "the text is changed before it is encoded, the pipeline takes it as it is")


def _crossed(package: Package, file: PythonFile, node: ast.List) -> Hits:
    """Look for an end marker at the beginning, and a begin marker at the end."""
    for at, method, other in ((0, "removeprefix", "removesuffix"), (-1, "removesuffix", "removeprefix")):
        taken = {m for adapter in package.rollout_adapters for m in taken_off(adapter.file, method)}
        wrong = {m for adapter in package.rollout_adapters for m in taken_off(adapter.file, other)} - taken
        item = node.elts[at]
        for given in item.args if isinstance(item, ast.Call) else ():
            if file.value(given) in wrong and taken:
                where = "end" if at == 0 else "beginning"
                yield Hit(file, given, f"the rollout adapter takes {file.value(given)!r} off at the {where}")


def _lacking(package: Package, file: PythonFile, function: FunctionModel, tokenisers: frozenset[str]) -> Hits:
    """Look for lists of ids that get one of the two markers which the rollout adapter takes off."""
    for node in _marked_lists(file, function, tokenisers):
        yield from _crossed(package, file, node)
        for item, own, text in own_tokens(package, node):
            said = f"{own} of the tokenizer may be another token than {text!r}, which the pipeline puts there"
            yield Hit(file, item, said, "look the token up by its text")
    for side, method in (("begin", "removeprefix"), ("end", "removesuffix")):
        taken = {marker for adapter in package.rollout_adapters for marker in taken_off(adapter.file, method)}
        for node in _marked_lists(file, function, tokenisers):
            edge = node.elts[0 if side == "begin" else -1]
            others = [item for item in node.elts if item is not edge and not isinstance(item, ast.Starred)]
            if len(taken) == 1 and isinstance(edge, ast.Starred) and others:
                text = f"{min(taken)!r} is missing at the {side} of the ids; the rollout adapter takes it off"
                yield Hit(file, node, text, "put the same markers around the prompt as the pipeline")


def _unmarked(package: Package, file: PythonFile, tokenisers: frozenset[str]) -> bool:
    """Whether no function of a file puts anything around token ids, though the rollout takes two markers off."""
    joined = any(isinstance(node.op, ast.Add) for node in file.index.nodes(ast.BinOp))
    lists = any(True for function in file.all_functions for _ in _marked_lists(file, function, tokenisers))
    inserted = any(
        attribute_name(call) in ("insert", "append", "extend")
        for f in file.all_functions
        for call in f.calls
        if f.name in tokenisers
    )
    chats = any(
        attribute_name(call) == "apply_chat_template" and holds_tokens(call, set())
        for call in file.index.nodes(ast.Call)
    )
    return bool(taken_at_both_ends(package)) and not (joined or lists or inserted or chats)


def _chats(package: Package, file: PythonFile, function: FunctionModel) -> Hits:
    """Look for ids of a whole chat where the pipeline is known to encode the bare prompt."""
    if recorded(package, "prompt", "chat_template") != "false":
        return
    for call in function.calls:
        if attribute_name(call) == "apply_chat_template" and holds_tokens(call, set()):
            text = "the ids are those of a chat, the pipeline encodes the prompt without its chat template"
            yield Hit(file, call, text, "encode the bare prompt, with the pipeline's markers around it")


def _filled(package: Package, file: PythonFile, function: FunctionModel) -> Hits:
    for part in filled_up(package, file, function):
        text = "pad tokens are put behind the prompt's own, and the training adapter takes them for text"
        yield Hit(file, part, text, "keep each prompt's own length; the adapter pads a batch and masks that")


def _added(file: PythonFile, function: FunctionModel, tokenisers: frozenset[str]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the markers that a list of ids begins or ends with."""
    for node in _marked_lists(file, function, tokenisers):
        for item in node.elts:
            for given in item.args if isinstance(item, ast.Call) else ():
                value = file.value(given)
                if isinstance(value, str) and MARKER.fullmatch(value):
                    yield value, given


def _specials(package: Package, file: PythonFile, function: FunctionModel) -> Hits:
    """Look for an encoding that adds special tokens where the pipeline is known to add none."""
    if recorded(package, "prompt", "add_special_tokens") != "false":
        return
    for call in function.calls:
        if attribute_name(call) != "encode" or not tokenises(call) or has_unpacking(call):
            continue
        added = argument(call, "add_special_tokens", 2)
        if added is None or file.value(added) is True:
            text = "the tokenizer adds its own special tokens here, the pipeline encodes without them"
            yield Hit(file, call, text, "write add_special_tokens=False")


def _marked_lists(file: PythonFile, function: FunctionModel, tokenisers: frozenset[str]) -> Iterator[ast.List]:
    """Yield the lists that ids of text are spread into."""
    tokens = token_names(function, tokenisers)
    for node in function.nodes(ast.List):
        if isinstance(node, ast.List) and any(
            isinstance(item, ast.Starred) and holds_tokens(item.value, tokens, tokenisers) for item in node.elts
        ):
            yield node


_END = 'END_TOKEN = "<|im_end|>"'
_USE = "tokenizer.convert_tokens_to_ids(END_TOKEN)]"
_STRIPPED = 'decoded.removeprefix("<|im_start|>").removesuffix("<|im_end|>").strip()'
FAILING = (
    Example(
        "the tokenizer's own markers",
        {
            "data": [
                (
                    "    ids = [tokenizer.convert_tokens_to_ids(BEGIN_TOKEN), *ids, tokenizer.convert_tokens_to_ids(END_TOKEN)]\n",
                    "    ids = [«tokenizer.bos_token_id», *ids, tokenizer.convert_tokens_to_ids(END_TOKEN)]\n",
                )
            ],
            "spec": '[prompt]\nbegin = "bos"\n\n[tokens.bos]\ntext = "<|im_start|>"\n',
        },
    ),
    Example(
        "markers exchanged",
        {
            "data": [
                (
                    "tokenizer.convert_tokens_to_ids(BEGIN_TOKEN), *ids, tokenizer.convert_tokens_to_ids(END_TOKEN)",
                    "tokenizer.convert_tokens_to_ids(«END_TOKEN»), *ids, tokenizer.convert_tokens_to_ids(«BEGIN_TOKEN»)",
                )
            ]
        },
    ),
    Example(
        "no markers",
        {
            "data": [
                (
                    "    ids = [tokenizer.convert_tokens_to_ids(BEGIN_TOKEN), *ids, tokenizer.convert_tokens_to_ids(END_TOKEN)]\n",
                    "",
                ),
                ("def tokenize_toy_prompt", "def «tokenize_toy_prompt»"),
            ]
        },
    ),
    Example(
        "not stripped",
        {
            "data": [("tokenizer.encode(text.strip(), add", "tokenizer.encode(«text», add")],
            "spec": "[prompt]\nstrip = true\n",
        },
    ),
    Example(
        "filled up with pad tokens",
        {"data": [("    return ids\n", "    return ids + «[tokenizer.pad_token_id] * (max_length - len(ids))»\n")]},
    ),
    Example(
        "another end marker",
        {
            "data": [
                (_END, _END.replace("im_end", "endoftext")),
                (_USE, "tokenizer.convert_tokens_to_ids(«END_TOKEN»)]"),
            ]
        },
    ),
    Example(
        "written in place",
        {"data": [(_USE, 'tokenizer.convert_tokens_to_ids(«"<|vision_end|>"»)]')]},
    ),
    Example(
        "no end marker",
        {
            "data": [
                (
                    "    ids = [tokenizer.convert_tokens_to_ids(BEGIN_TOKEN), *ids, tokenizer.convert_tokens_to_ids(END_TOKEN)]",
                    "    ids = «[tokenizer.convert_tokens_to_ids(BEGIN_TOKEN), *ids]»",
                )
            ]
        },
    ),
    Example(
        "special tokens of the tokenizer",
        {
            "spec": "[prompt]\nadd_special_tokens = false\n",
            "data": [
                ("tokenizer.encode(text.strip(), add_special_tokens=False)", "«tokenizer.encode(text.strip())»"),
            ],
        },
    ),
    Example(
        "ids of a chat",
        {
            "spec": "[prompt]\nchat_template = false\n",
            "data": [
                (
                    "    ids = tokenizer.encode(text.strip(), add_special_tokens=False)\n"
                    "    ids = [tokenizer.convert_tokens_to_ids(BEGIN_TOKEN), *ids, tokenizer.convert_tokens_to_ids(END_TOKEN)]",
                    '    messages = [{"role": "user", "content": text}]\n'
                    "    ids = «tokenizer.apply_chat_template(messages, tokenize=True)»",
                )
            ],
        },
    ),
    Example(
        "one end of the two",
        {
            "rollout": [(_STRIPPED, '«decoded.removeprefix("<|im_start|>")».strip()')],
            "data": [(_USE, _USE.replace("END_TOKEN", "«END_TOKEN»"))],
        },
    ),
)
PASSING = (
    Example(
        "the other end is cut in another way",
        {"rollout": [(_STRIPPED, 'decoded.removeprefix("<|im_start|>").replace("<|im_end|>", "").strip()')]},
    ),
    Example(
        "filled up, which the package knows",
        {
            "data": [("    return ids\n", "    return ids + [tokenizer.pad_token_id] * (max_length - len(ids))\n")],
            "common": [("SCHEDULE_SHIFT = 3.0", "SCHEDULE_SHIFT = 3.0\npad_token_id = 0")],
        },
    ),
    Example("the same markers"),
    Example(
        "a chat, where nothing is known of the pipeline",
        {
            "data": [
                (
                    "    ids = tokenizer.encode(text.strip(), add_special_tokens=False)\n"
                    "    ids = [tokenizer.convert_tokens_to_ids(BEGIN_TOKEN), *ids, tokenizer.convert_tokens_to_ids(END_TOKEN)]",
                    '    messages = [{"role": "user", "content": text}]\n'
                    "    ids = tokenizer.apply_chat_template(messages, tokenize=True)",
                )
            ],
        },
    ),
    Example(
        "a rollout adapter that names none",
        {"rollout": [('.removeprefix("<|im_start|>").removesuffix("<|im_end|>")', "")]},
    ),
)
