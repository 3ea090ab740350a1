"""What ``save_pretrained`` of a training configuration writes."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from scaffold.check.model.calls import attribute_name
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.follow import follow
from scaffold.check.model.functions import FunctionModel


@dataclass
class SavedConfig:
    """The object that is written as JSON.

    Attributes:
        node: the expression that is written.
        keys: key at the top level -> what is written under it; fields that are written by ``asdict`` too.
        sections: keys that hold all fields one level deeper, with the expression.
        complete: no other key can be in it.
    """

    node: ast.expr
    keys: dict[str, ast.expr] = field(default_factory=dict)
    sections: dict[str, ast.expr] = field(default_factory=dict)
    complete: bool = True


def saved_config(config: ClassModel, save: FunctionModel) -> SavedConfig | None:
    """Return what is given to ``json.dump``; None where that is not plain or not given once."""
    given = [call.args[0] for call in save.calls if attribute_name(call) in ("dump", "dumps") and call.args]
    if len(given) != 1:
        return None
    value = follow(save.file, given[0])
    saved = SavedConfig(given[0])
    if is_fields(value):
        saved.keys = dict.fromkeys(config.fields, value)
        return saved
    if not isinstance(value, ast.Dict):
        return None
    for key, item in zip(value.keys, value.values, strict=True):
        name = save.file.value(key) if key is not None else None
        if key is None and is_fields(item):
            saved.keys |= dict.fromkeys(config.fields, item)
        elif isinstance(name, str):
            saved.keys[name] = item
            if is_fields(follow(save.file, item)):
                saved.sections[name] = item
        else:
            saved.complete = False
    return saved


def is_fields(value: ast.expr) -> bool:
    """Whether an expression is all fields of ``self``: ``asdict(self)``, ``vars(self)``, ``self.__dict__``."""
    if isinstance(value, ast.Call) and attribute_name(value) in ("asdict", "vars"):
        return bool(value.args) and isinstance(value.args[0], ast.Name) and value.args[0].id == "self"
    return isinstance(value, ast.Attribute) and value.attr == "__dict__"
