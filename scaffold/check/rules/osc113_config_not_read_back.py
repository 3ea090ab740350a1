"""``from_model_path`` does not find what ``save_pretrained`` wrote.

The configuration is written flat, field by field, and read from the sections of the released checkpoint's file. Read
back from a saved model every section is missing, every size takes its default, and the module is built for another
model than the weights beside it.

    json.dump(asdict(self), file)                    # {"hidden_size": 64, …}
    cls(hidden_size=raw.get("llm_config", {}).get("hidden_size", 3584))

Instead: mark what ``save_pretrained`` writes and read such a file field by field.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.follow import follow
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC113"
NAME = "config-not-read-back"
SEVERITY = "error"
CHECKLIST = ("M1", "pitfall 36")
APPLIES = Applies(non_diffusers=True)
HELP = "read what save_pretrained() wrote field by field, and the released file otherwise"


def check(package: Package) -> Hits:
    """Compare how the fields are written with how they are read."""
    config = package.config_class
    save = config.method("save_pretrained") if config is not None else None
    read = config.method("from_model_path") if config is not None else None
    if config is None or save is None or read is None or config.file not in package.files or not _writes_flat(save):
        return
    built = [call for call in read.calls if _builds(read, call, config.name)]
    # A branch that hands on everything it read, or fills the fields in a loop, reads the flat file.
    if not built or any(item.arg is None for call in built for item in call.keywords) or _sets_fields(read):
        return
    for call in built:
        nested = [(item, section) for item in call.keywords if (section := _section(read, item.value)) is not None]
        if nested:
            item, section = nested[0]
            fields = f"{len(nested)} fields are" if len(nested) > 1 else f"{item.arg!r} is"
            text = f"{fields} read from the section {section!r}, which save_pretrained() does not write"
            yield Hit(read.file, item.value, text)
            return


def _writes_flat(save: FunctionModel) -> bool:
    """Whether all fields are written at the top level: ``json.dump(asdict(self), …)``."""
    for call in save.calls:
        if attribute_name(call) in ("dump", "dumps") and call.args:
            value = follow(save.file, call.args[0])
            parts = [value]
            if isinstance(value, ast.Dict):
                parts = [item for key, item in zip(value.keys, value.values, strict=True) if key is None]
            if any(_is_fields(part) for part in parts):
                return True
    return False


def _is_fields(value: ast.expr) -> bool:
    if isinstance(value, ast.Call) and attribute_name(value) in ("asdict", "vars"):
        return bool(value.args) and isinstance(value.args[0], ast.Name) and value.args[0].id == "self"
    return isinstance(value, ast.Attribute) and value.attr == "__dict__"


def _builds(read: FunctionModel, call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in ("cls", name)


def _sets_fields(read: FunctionModel) -> bool:
    return any(isinstance(call.func, ast.Name) and call.func.id == "setattr" for call in read.calls)


def _section(read: FunctionModel, value: ast.expr) -> str | None:
    """Return the section that a value is taken from: ``raw["section"]["key"]``, by ``get`` or through a name."""
    for base in _looked_up(read, value):
        for outer, key in _look_ups(read, base):
            root = follow(read.file, outer)
            if isinstance(root, ast.Call) and attribute_name(root) in ("load", "loads"):
                return key
    return None


def _looked_up(read: FunctionModel, value: ast.expr) -> Iterator[ast.expr]:
    """Yield what an expression looks keys up in."""
    for node in ast.walk(value):
        for base, _ in _look_ups(read, node):
            yield base


def _look_ups(read: FunctionModel, node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(node, ast.Name):
        node = follow(read.file, node)
    # ``x.get("a") or {}`` looks up in x as well.
    for part in node.values if isinstance(node, ast.BoolOp) else [node]:
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and part.func.attr == "get"
            and part.args
        ):
            key = read.file.value(part.args[0])
            if isinstance(key, str):
                yield part.func.value, key
        elif isinstance(part, ast.Subscript):
            key = read.file.value(part.slice)
            if isinstance(key, str):
                yield part.value, key


_READ = "        return cls(**{field.name: raw[field.name] for field in fields(cls)})\n"
FAILING = (
    Example(
        "from a section, through a name",
        {
            "model": [
                (
                    _READ,
                    '        text = raw.get("text_config", {})\n'
                    '        return cls(hidden_size=«text.get("hidden_size", 64)», latent_dim=raw["latent_dim"])\n',
                )
            ]
        },
        also=("OSC114",),
    ),
    Example(
        "from a section, at once",
        {"model": [(_READ, '        return cls(hidden_size=«int(raw["text_config"]["hidden_size"])»)\n')]},
        also=("OSC114",),
    ),
)
PASSING = (
    Example("field by field"),
    Example(
        "all at the top level",
        {
            "model": [
                (
                    _READ,
                    "        return cls(\n            hidden_size=raw['hidden_size'],\n"
                    "            num_hidden_layers=raw['num_hidden_layers'],\n"
                    "            num_attention_heads=raw['num_attention_heads'], vocab_size=raw['vocab_size'],\n"
                    "            latent_dim=raw['latent_dim'], max_latent_size=raw['max_latent_size'],\n"
                    "            start_of_image_id=raw['start_of_image_id'],\n"
                    "            end_of_image_id=raw['end_of_image_id'],\n        )\n",
                )
            ]
        },
    ),
    Example(
        "two formats",
        {
            "model": [
                (
                    _READ,
                    '        if "text_config" in raw:\n'
                    '            return cls(hidden_size=raw["text_config"]["hidden_size"])\n' + _READ,
                )
            ]
        },
        also=("OSC114",),
    ),
)
