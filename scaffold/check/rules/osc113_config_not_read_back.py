"""``from_model_path`` does not find what ``save_pretrained`` wrote.

The configuration is written flat, field by field, and read from the sections of the released checkpoint's file. Read
back from a saved model every section is missing, every size takes its default, and the module is built for another
model than the weights beside it. Whether every value comes back, `verify` measures (``config-round-trip``).

    json.dump(asdict(self), file)                    # {"hidden_size": 64, …}
    cls(hidden_size=raw.get("llm_config", {}).get("hidden_size", 3584))

Instead: mark what ``save_pretrained`` writes and read such a file field by field.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name, follow
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.reach import reachable
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC113"
NAME = "config-not-read-back"
SEVERITY = "error"
CHECKLIST = ("M1", "pitfall 36")
APPLIES = Applies(non_diffusers=True)
HELP = "read what save_pretrained() wrote field by field, and the released file otherwise"


def check(package: Package) -> Hits:
    """Compare the file and the keys that are written with those that are read."""
    config = package.config_class
    save = config.method("save_pretrained") if config is not None else None
    read = config.method("from_model_path") if config is not None else None
    if config is None or save is None or read is None or config.file not in package.files:
        return
    written = dict(_json_names(save))
    opened = {name for function in reachable(read) for name, _ in _json_names(function)}
    if len(written) == 1 and opened and not written.keys() & opened:
        name, node = next(iter(written.items()))
        yield Hit(save.file, node, f"{name} is written, from_model_path() opens {', '.join(sorted(opened)[:3])}")
    dumped = [call.args[0] for call in save.calls if attribute_name(call) in ("dump", "dumps") and call.args]
    built = [call for call in read.calls if isinstance(call.func, ast.Name) and call.func.id in ("cls", config.name)]
    # A branch that hands on everything it read, or fills the fields in a loop, reads the flat file.
    whole = any(item.arg is None for call in built for item in call.keywords)
    if len(dumped) != 1 or not _is_flat(follow(save.file, dumped[0])) or whole:
        return
    nested = [(item, key) for call in built for item in call.keywords if (key := _section(read, item.value))]
    if nested and not any(attribute_name(call) == "setattr" for call in read.calls):
        item, section = nested[0]
        fields = f"{len(nested)} fields are" if len(nested) > 1 else f"{item.arg!r} is"
        text = f"{fields} read from the section {section!r}, which save_pretrained() does not write"
        yield Hit(read.file, item.value, text)


def _json_names(function: FunctionModel) -> Iterator[tuple[str, ast.Constant]]:
    for node in function.file.index.nodes(ast.Constant, function.node):
        if isinstance(node.value, str) and node.value.endswith(".json"):
            yield node.value, node


def _is_flat(value: ast.expr) -> bool:
    """Whether an expression is all fields of ``self``: ``asdict(self)``, ``vars(self)``, ``self.__dict__``."""
    if isinstance(value, ast.Call) and attribute_name(value) in ("asdict", "vars"):
        return bool(value.args) and isinstance(value.args[0], ast.Name) and value.args[0].id == "self"
    return isinstance(value, ast.Attribute) and value.attr == "__dict__"


def _section(read: FunctionModel, value: ast.expr) -> str | None:
    """Return the section of the file that a value is taken from: ``raw["section"]["key"]``, also through a name."""
    for node in ast.walk(value):
        for base, _ in _looked_up(read, node):
            for outer, section in _looked_up(read, follow(read.file, base)):
                root = follow(read.file, outer)
                if isinstance(root, ast.Call) and attribute_name(root) in ("load", "loads"):
                    return section
    return None


def _looked_up(read: FunctionModel, node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    # ``x.get("a") or {}`` looks up in x as well.
    for part in node.values if isinstance(node, ast.BoolOp) else [node]:
        base, key = None, None
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "get":
            base, key = part.func.value, part.args[0] if part.args else None
        elif isinstance(part, ast.Subscript):
            base, key = part.value, part.slice
        name = read.file.value(key) if key is not None else None
        if base is not None and isinstance(name, str):
            yield base, name


FAILING = (Example("another file", model=(', "config.json"),', ', «"training_config.json"»),')),)
PASSING = (
    Example(
        "a branch for the released file",
        model=("load(file)\n", 'load(file)\n        if "text" in raw:\n            return cls(**raw["text"])\n'),
    ),
)
