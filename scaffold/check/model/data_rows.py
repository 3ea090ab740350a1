"""Data scripts: the rows that they write, the token ids that they compute."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.calls import attribute_name, follow
from scaffold.check.model.python import FunctionModel, PythonFile

# A dictionary with two of these keys is a row of training data.
ROW_KEYS = {"data_source", "prompt", "negative_prompt", "ability", "reward_model", "extra_info", "images"}
TOKENISING = {"encode", "encode_plus", "batch_encode_plus", "convert_tokens_to_ids", "apply_chat_template"}


_METHODS = {
    "strip",
    "lstrip",
    "rstrip",
    "lower",
    "upper",
    "title",
    "format",
    "join",
    "replace",
    "dumps",
    "removeprefix",
}
_FUNCTIONS = {"str", "repr", "dumps", "input"}
_LISTS = {"split", "rsplit", "splitlines", "readlines"}


def rows(file: PythonFile) -> Iterator[tuple[ast.expr, dict[str, ast.expr], bool]]:
    """Yield dictionaries that are rows of training data, by their keys or because they are written as rows.

    Yields:
        The dictionary, its literal keys with their values, and whether it has no other keys.
    """
    written = set(_written(file))
    candidates: list[ast.Dict | ast.Call] = [*file.index.nodes(ast.Dict), *file.index.nodes(ast.Call)]
    for node in candidates:
        if isinstance(node, ast.Dict):
            pairs = list(zip(node.keys, node.values, strict=True))
            keys = {k.value: v for k, v in pairs if isinstance(k, ast.Constant) and isinstance(k.value, str)}
            complete = len(keys) == len(pairs)
        elif isinstance(node.func, ast.Name) and node.func.id == "dict":
            keys = {item.arg: item.value for item in node.keywords if item.arg is not None}
            complete = not node.args and len(keys) == len(node.keywords)
        else:
            continue
        marks = ROW_KEYS & keys.keys()
        if (len(marks) >= 2 and ("data_source" in marks or "reward_model" in marks)) or node in written:
            yield node, keys, complete


def _written(file: PythonFile) -> Iterator[ast.expr]:
    """Yield the items of lists that are made into a data set."""
    for call in file.index.nodes(ast.Call):
        if attribute_name(call) not in ("from_list", "DataFrame", "from_records", "from_pylist") or not call.args:
            continue
        given = call.args[0]
        value = follow(file, given)
        if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
            yield value.elt
        elif isinstance(value, ast.List):
            yield from value.elts
        if isinstance(given, ast.Name):
            around = file.scopes.scope_of(given)
            for other in file.index.nodes(ast.Call, around):
                target = other.func
                if isinstance(target, ast.Attribute) and target.attr == "append" and len(other.args) == 1:
                    if isinstance(target.value, ast.Name) and target.value.id == given.id:
                        yield other.args[0]


def chatless(file: PythonFile) -> Iterator[tuple[ast.expr, bool]]:
    """Yield values of ``prompt`` that are no list of chat messages, and rows that have no ``prompt``.

    Yields:
        The node, and whether the row has the key.
    """
    for node, keys, complete in rows(file):
        if "prompt" in keys:
            if is_chat(file, keys["prompt"]) is False:
                yield keys["prompt"], True
        elif complete:
            yield node, False


def is_chat(file: PythonFile, value: ast.expr) -> bool | None:
    """Whether a value is a list of chat messages; None where the text does not tell."""
    value = follow(file, value)
    if isinstance(value, ast.List):
        if not value.elts:
            return False
        kinds = [_is_message(follow(file, item)) for item in value.elts]
        roles = [_role(file, follow(file, item)) for item in value.elts]
        if None not in roles and "user" not in roles:
            return False
        return False if False in kinds else None if None in kinds else True
    if isinstance(value, (ast.JoinedStr, ast.Dict)) or (isinstance(value, ast.Constant) and value.value is not None):
        return False
    if _is_text(file, value):
        return False
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return False if is_chat(file, value.left) is False and is_chat(file, value.right) is False else None
    return None


def _is_message(value: ast.expr) -> bool | None:
    if isinstance(value, ast.Dict):
        keys = {key.value for key in value.keys if isinstance(key, ast.Constant)}
        return {"role", "content"} <= keys or (None if None in value.keys else False)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
        return {"role", "content"} <= {item.arg for item in value.keywords}
    return False if isinstance(value, (ast.Constant, ast.JoinedStr, ast.Tuple, ast.List)) else None


def _role(file: PythonFile, value: ast.expr) -> str | None:
    """Return the role of a message, where it is a literal."""
    pairs = zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ()
    roles = [file.value(v) for k, v in pairs if isinstance(k, ast.Constant) and k.value == "role"]
    return roles[0] if len(roles) == 1 and isinstance(roles[0], str) else None


def tokenises(call: ast.Call) -> bool:
    """Whether a call certainly runs a tokenizer."""
    name = attribute_name(call)
    if isinstance(call.func, ast.Attribute):
        owner = call.func.value
        text = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
        return name in TOKENISING and (name != "encode" or "tok" in text.lower())
    return isinstance(call.func, ast.Name) and call.func.id.lower() in ("tokenizer", "tok")


def token_names(function: FunctionModel, tokenisers: frozenset[str] = frozenset()) -> set[str]:
    """Return the local names of a function that hold token ids.

    Args:
        function: the function.
        tokenisers: names of functions of the same file that return token ids.
    """
    found: set[str] = set()
    assignments = [node for node in function.nodes(ast.Assign) if isinstance(node, ast.Assign)]
    assignments_with_type = [node for node in function.nodes(ast.AnnAssign) if isinstance(node, ast.AnnAssign)]
    pairs = [(target, node.value) for node in assignments for target in node.targets]
    pairs += [(node.target, node.value) for node in assignments_with_type if node.value is not None]
    growing = True
    while growing:
        growing = False
        for target, value in pairs:
            if isinstance(target, ast.Name) and target.id not in found and holds_tokens(value, found, tokenisers):
                found.add(target.id)
                growing = True
    return found


def holds_tokens(value: ast.expr, tokens: set[str], tokenisers: frozenset[str] = frozenset()) -> bool:
    """Whether an expression holds token ids; their number and text decoded from them do not count."""
    if isinstance(value, ast.Name):
        return value.id in tokens
    if isinstance(value, ast.Call):
        if tokenises(value):
            text = next((item.value for item in value.keywords if item.arg == "tokenize"), None)
            return not (isinstance(text, ast.Constant) and text.value is False)
        if isinstance(value.func, ast.Name) and value.func.id in tokenisers:
            return True
        if isinstance(value.func, ast.Name) and value.func.id in ("list", "tuple"):
            return any(holds_tokens(item, tokens, tokenisers) for item in value.args)
        if isinstance(value.func, ast.Attribute) and value.func.attr in ("tolist", "copy"):
            return holds_tokens(value.func.value, tokens, tokenisers)
        return False
    if isinstance(value, (ast.List, ast.Tuple)):
        return any(holds_tokens(item, tokens, tokenisers) for item in value.elts)
    if isinstance(value, (ast.Starred, ast.Subscript, ast.Attribute)):
        return holds_tokens(value.value, tokens, tokenisers)
    if isinstance(value, ast.BinOp):
        return any(holds_tokens(item, tokens, tokenisers) for item in (value.left, value.right))
    if isinstance(value, ast.IfExp):
        return any(holds_tokens(item, tokens, tokenisers) for item in (value.body, value.orelse))
    return False


def tokenising_functions(file: PythonFile) -> frozenset[str]:
    """Return the names of the file's functions that return token ids."""
    found: frozenset[str] = frozenset()
    for _ in range(4):
        names = {
            function.name
            for function in file.all_functions
            for statement in function.returns
            if statement.value is not None and holds_tokens(statement.value, token_names(function, found), found)
        }
        if names == found:
            break
        found = frozenset(names)
    return found


def _is_text(file: PythonFile, value: ast.expr, hops: int = 8) -> bool:
    """Whether an expression is certainly a string: a literal, what a text method gives, a name declared as ``str``."""
    if not hops:
        return False
    if isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str)):
        return True
    if isinstance(value, ast.Call):
        return attribute_name(value) in (_METHODS if isinstance(value.func, ast.Attribute) else _FUNCTIONS)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return _is_text(file, value.left, hops - 1) and _is_text(file, value.right, hops - 1)
    if not isinstance(value, ast.Name):
        return False
    bindings = file.scopes.lookup(value.id, value)
    if len(bindings) != 1:
        return False
    binding = bindings[0]
    if binding.kind == "parameter":
        return isinstance(binding.node, ast.arg) and _names_str(binding.node.annotation)
    if binding.kind == "variable" and binding.value is not None:
        return _is_text(file, binding.value, hops - 1)
    loop = file.index.parent(binding.node) if binding.kind == "variable" else None
    if isinstance(loop, (ast.For, ast.comprehension)) and loop.target is binding.node:
        return _holds_text(file, loop.iter, hops - 1)
    return False


def _holds_text(file: PythonFile, value: ast.expr, hops: int) -> bool:
    """Whether an expression is certainly a sequence of strings."""
    if isinstance(value, (ast.List, ast.Tuple)):
        return bool(value.elts) and all(_is_text(file, item, hops) for item in value.elts)
    if isinstance(value, ast.Name):
        bindings = file.scopes.lookup(value.id, value)
        single = bindings[0].value if len(bindings) == 1 and bindings[0].kind == "variable" else None
        return single is not None and hops > 0 and _holds_text(file, single, hops - 1)
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute):
        return value.func.attr in _LISTS
    name = file.qualified(value.func)
    function = file.project.function_named(name) if name is not None else None
    returned = function.node.returns if function is not None else None
    if isinstance(returned, ast.Subscript) and isinstance(returned.value, ast.Name):
        return returned.value.id in ("list", "Sequence", "Iterable", "Iterator", "List") and _names_str(returned.slice)
    return False


def _names_str(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "str"
