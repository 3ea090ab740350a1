"""The defaults of the configuration's class stand where this model's own sizes belong.

The defaults are those of the released model. Saved in the place of ``self``, or given to the module, they make another
model of everything that is not that release: a tiny checkpoint is built, or read back, at full size, and a fine-tuned
variant loses what was changed.

    json.dump(asdict(type(self)()), file)

Instead: save the fields of ``self``, and build the module from what ``from_model_path`` read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC138"
NAME = "default-configuration"
SEVERITY = "error"
CHECKLIST = ("M1", "M6", "pitfall 36")
APPLIES = Applies(non_diffusers=True)
HELP = "take the values of this object, not those of its class"


def check(package: Package) -> Hits:
    """Look at what is saved, at what the module is built from and keeps, and at what the adapter asks."""
    config, module = package.config_class, package.training_module
    if config is None or module is None or not config.is_dataclass or config.file not in package.files:
        return
    save = config.method("save_pretrained")
    if save is not None and save.file in package.files:
        yield from _saved(config, save)
    for name in ("from_pretrained", "__init__", "save_pretrained"):
        method = module.method(name)
        if method is not None and method.file in package.files:
            yield from _built(config, module, method)
    for function in side_of(package, "training").functions:
        for call in function.calls if function.file in package.files else ():
            if function.file.project.class_of(function.file, call.func) == module:
                continue  # a module without weights: missing-build-module says so
            for value in (*call.args, *(item.value for item in call.keywords)):
                if _is_default(config, function, value) and not _fallback(function, value):
                    text = f"{ast.unparse(value)} has the defaults of its class, not the sizes of the module"
                    yield Hit(function.file, value, text)


def _saved(config: ClassModel, save: FunctionModel) -> Hits:
    """Look for fields of another object, or of the class, in what is written."""
    index = save.file.index
    for call in save.calls:
        given = call.args[0] if attribute_name(call) in ("asdict", "vars") and call.args else None
        if given is not None and _is_default(config, save, given):
            yield Hit(save.file, given, f"the defaults of {config.name} are saved, not the values of this object")
    for node in index.nodes(ast.DictComp, save.node):
        source = node.generators[0].iter
        if isinstance(source, ast.Call) and attribute_name(source) == "fields":
            where = _of_class(config, save, node.value)
            if where is not None:
                yield Hit(save.file, where, f"the defaults of {config.name} are saved, not the values of this object")
    for table in index.nodes(ast.Dict, save.node):
        for key, value in zip(table.keys, table.values, strict=True):
            name = key.value if isinstance(key, ast.Constant) else None
            if not isinstance(name, str) or name not in config.fields:
                continue
            if _of_class(config, save, value) is not None:
                yield Hit(save.file, value, f"the default of {name} is saved, not the value of this object")
            elif isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
                if value.value.id == save.bound and value.attr in config.fields and value.attr != name:
                    yield Hit(save.file, value, f"{value.attr} is saved under the name {name}")


def _of_class(config: ClassModel, save: FunctionModel, value: ast.expr) -> ast.expr | None:
    """Return what takes a value from the class: ``field.default``, ``type(self).size``, ``getattr(type(self), n)``."""
    for node in save.file.index.nodes(ast.Attribute, value):
        of_class = node.attr in ("default", "default_factory") or _is_class(config, save, node.value)
        if of_class and not node.attr.startswith("__"):
            return value
    for call in save.file.index.nodes(ast.Call, value):
        if isinstance(call.func, ast.Name) and call.func.id == "getattr" and call.args:
            if _is_class(config, save, call.args[0]):
                return value
    return None


def _is_class(config: ClassModel, function: FunctionModel, value: ast.expr) -> bool:
    """Whether an expression is the configuration's class itself."""
    if isinstance(value, ast.Call):
        name = isinstance(value.func, ast.Name) and value.func.id == "type" and len(value.args) == 1
        return name and _is_config(config, function, value.args[0])
    if isinstance(value, ast.Attribute) and value.attr == "__class__":
        return _is_config(config, function, value.value)
    return function.file.project.class_of(function.file, value) == config


def _is_config(config: ClassModel, function: FunctionModel, value: ast.expr) -> bool:
    """Whether an expression is a configuration: ``self`` in its methods, ``self.config`` and the like elsewhere."""
    own = function.cls == config and isinstance(value, ast.Name) and value.id == function.bound
    return own or (isinstance(value, ast.Attribute) and value.attr == "config")


def _is_default(config: ClassModel, function: FunctionModel, value: ast.expr) -> bool:
    """Whether an expression is an object of the class that was given nothing."""
    if isinstance(value, ast.Name):
        found = reaching(function, value)
        return bool(found) and all(b.value is not None and _is_default(config, function, b.value) for b in found)
    plain = isinstance(value, ast.Call) and not value.args and not value.keywords
    return (
        plain and isinstance(value, ast.Call) and _is_class(config, function, value.func) and not _set(function, value)
    )


def _set(function: FunctionModel, value: ast.expr) -> bool:
    """Whether something is put into the new object afterwards."""
    index = function.file.index
    statement = index.parent(value)
    names = {t.id for t in statement.targets if isinstance(t, ast.Name)} if isinstance(statement, ast.Assign) else set()
    return any(
        isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id in names
        for node in index.nodes(ast.Attribute, function.node)
    ) or any(
        isinstance(call.func, ast.Name)
        and call.func.id == "setattr"
        and any(isinstance(item, ast.Name) and item.id in names for item in call.args)
        for call in function.calls
    )


def _fallback(function: FunctionModel, value: ast.expr) -> bool:
    """Whether an object stands in for one that may be missing."""
    around = function.file.index.ancestors(value)
    return any(isinstance(node, (ast.BoolOp, ast.IfExp, ast.If, ast.ExceptHandler)) for node in around)


def _built(config: ClassModel, module: ClassModel, method: FunctionModel) -> Hits:
    """Look at what a module is built from, what it keeps, and what is saved with it."""
    for where in _defaults(config, module, method):
        if not _fallback(method, where):
            text = f"{ast.unparse(where)} has the defaults of {config.name}, not the sizes of this model"
            yield Hit(method.file, where, text)


def _defaults(config: ClassModel, module: ClassModel, method: FunctionModel) -> Iterator[ast.expr]:
    for call in method.calls:
        target = call.func
        if isinstance(target, ast.Attribute) and target.attr in ("save_pretrained", "to_json_file"):
            if method.name == "save_pretrained" and _is_default(config, method, target.value):
                yield target.value
        made = isinstance(target, ast.Name) and target.id == method.bound and method.name == "from_pretrained"
        if made or method.file.project.class_of(method.file, target) == module:
            yield from (value for value in call.args if _is_default(config, method, value))
            yield from (item.value for item in call.keywords if _is_default(config, method, item.value))
    if method.name == "__init__" and method.positional:
        for attribute in module.own_instance_attributes.get("config", []):
            if attribute.value is not None and _is_default(config, method, attribute.value):
                yield attribute.value


_DUMP = "json.dump(asdict(self), file, indent=2, sort_keys=True)"
_MODEL = "            model = cls(config)\n"
_SAVE = (
    "    def save_pretrained(self, save_directory, **kwargs):\n"
    "        «type(self.config)()».save_pretrained(save_directory)\n"
    "        save_file(self.state_dict(), os.path.join(save_directory, 'ema.safetensors'))\n\n"
)
_PLACE = "    @classmethod\n    def from_pretrained(cls, model_path: str, torch_dtype"
FAILING = (
    Example("a new object of the class", {"model": [(_DUMP, "json.dump(asdict(«type(self)()»), file)")]}),
    Example(
        "a new object, by name",
        {
            "model": [
                (_DUMP, "json.dump(asdict(«sizes»), file)"),
                ("        os.makedirs(save_d", "        sizes = ToyTrainingConfig()\n        os.makedirs(save_d"),
            ]
        },
    ),
    Example(
        "the defaults of the fields",
        {"model": [(_DUMP, "json.dump({field.name: «field.default» for field in fields(self)}, file)")]},
    ),
    Example(
        "attributes of the class",
        {
            "model": [
                (
                    _DUMP,
                    "json.dump({field.name: «getattr(self.__class__, field.name)» for field in fields(self)}, file)",
                )
            ]
        },
    ),
    Example(
        "one of them", {"model": [(_DUMP, 'json.dump({**asdict(self), "vocab_size": «type(self).vocab_size»}, file)')]}
    ),
    Example(
        "another field",
        {"model": [(_DUMP, 'json.dump({**asdict(self), "vocab_size": «self.hidden_size»}, file)')]},
    ),
    Example("built from it", {"model": [(_MODEL, "            model = cls(«ToyTrainingConfig()»)\n")]}),
    Example("kept", {"model": [("self.config = config\n", "self.config = «ToyTrainingConfig()»\n")]}),
    Example("saved with the weights", {"model": [(_PLACE, _SAVE + _PLACE)]}),
    Example(
        "asked by the adapter",
        {
            "training": [
                (
                    "from .toy_model import ToyForTraining\n",
                    "from .toy_model import ToyForTraining, ToyTrainingConfig\n",
                ),
                ("torch.arange(latents.shape[2], device", "torch.arange(_side(«ToyTrainingConfig()»), device"),
                (
                    "\n\n@DiffusionModelBase.register(",
                    "\n\ndef _side(config):\n    return config.max_latent_size**2\n\n\n@DiffusionModelBase.register(",
                ),
            ]
        },
    ),
)
PASSING = (
    Example("this object's fields"),
    Example(
        "field by field",
        {
            "model": [
                (_DUMP, "json.dump({field.name: getattr(self, field.name) for field in fields(self)}, file)"),
            ]
        },
    ),
    Example(
        "the class's name as a mark",
        {"model": [(_DUMP, 'json.dump({"kind": type(self).__name__, **asdict(self)}, file)')]},
    ),
    Example(
        "filled afterwards",
        {
            "model": [
                (
                    "        config = ToyTrainingConfig.from_model_path(model_path)\n",
                    "        read = ToyTrainingConfig.from_model_path(model_path)\n"
                    "        config = ToyTrainingConfig()\n"
                    "        for field in fields(read):\n            setattr(config, field.name, getattr(read, field.name))\n",
                )
            ]
        },
    ),
    Example(
        "where none is given",
        {
            "model": [
                (
                    "    def __init__(self, config: ToyTrainingConfig):\n        super().__init__()\n        self.config = config\n",
                    "    def __init__(self, config: ToyTrainingConfig | None = None):\n        super().__init__()\n"
                    "        self.config = config = config or ToyTrainingConfig()\n",
                )
            ]
        },
    ),
)
