"""Values of a configuration that change on the way out to its file, or never come back from it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.model.calls import attribute_name
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.pyfile import PythonFile


def other_values(
    config: ClassModel, save: FunctionModel, read: FunctionModel
) -> Iterator[tuple[PythonFile, ast.AST, str]]:
    """Yield values that become text on the way out, and defaults that stand for what was written."""
    every = [node for node in read.nodes(ast.DictComp) if isinstance(node, ast.DictComp) and of_fields(node)]
    for node in every:
        value = node.value
        default = isinstance(value, ast.Attribute) and value.attr in ("default", "default_factory")
        if isinstance(value, ast.Call) and read.file.qualified(value.func) == "getattr" and value.args:
            owner = value.args[0]
            default = isinstance(owner, ast.Name) and owner.id in (read.bound, config.name)
        above = read.file.index.parent(node)
        call = read.file.index.parent(above) if isinstance(above, ast.keyword) and above.arg is None else None
        # Defaults that something else is put over are right.
        if default and isinstance(call, ast.Call) and len(call.keywords) == 1:
            yield read.file, value, "every field is given its default; what was written is not read"
    if not any(isinstance(node.value, ast.Subscript) for node in every):
        return
    for written in save.nodes(ast.DictComp):
        made = written.value if isinstance(written, ast.DictComp) else None
        text = isinstance(made, ast.Call) and save.file.qualified(made.func) in ("str", "repr")
        if made is not None and (text or isinstance(made, ast.JoinedStr)):
            yield save.file, made, "every value is written as text, and read back as text"


def of_fields(node: ast.DictComp) -> bool:
    """Whether a dictionary is made by going through the fields of a dataclass."""
    source = node.generators[0].iter
    return isinstance(source, ast.Call) and attribute_name(source) == "fields"
