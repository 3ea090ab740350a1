"""The training configuration is not a dataclass, or lacks ``save_pretrained`` or ``from_model_path``.

The configuration is saved beside the weights of every checkpoint and read back when training resumes or the result is
used. Without the two methods a saved model cannot be rebuilt; a plain class compares and prints as an address.

    class ToyTrainingConfig:
        def __init__(self, **kwargs): …

Instead: a ``@dataclass`` with ``save_pretrained(save_directory)`` and the classmethod ``from_model_path(model_path)``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.python import ClassModel, FunctionModel
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC112"
NAME = "incomplete-training-config"
SEVERITY = "error"
CHECKLIST = ("M1", "pitfall 36")
APPLIES = Applies(non_diffusers=True)
HELP = "make it a @dataclass with save_pretrained() and a classmethod from_model_path()"
METHODS = ("save_pretrained", "from_model_path")


def check(package: Package) -> Hits:
    """Look at the class that the training module is built from."""
    config = package.config_class
    # A base from elsewhere may bring the methods; a builtin brings none of them.
    if config is None or not config.resolved or set(config.external) - {"dict", "object", "builtins.dict"}:
        return
    if not config.is_dataclass:
        yield Hit(config.file, config.node, f"{config.name} is not a dataclass")
    lacking = [name for name in METHODS if (method := config.method(name)) is None or method.is_abstract]
    if lacking:
        yield Hit(config.file, config.node, f"{config.name} has no {' and no '.join(f'{name}()' for name in lacking)}")
    yield from _fields(package, config)
    reader = config.method("from_model_path")
    if reader is not None and not reader.is_abstract and not {"classmethod", "staticmethod"} & set(reader.decorators):
        yield Hit(reader.file, reader.node, f"{config.name}.from_model_path() is not a classmethod", "add @classmethod")


def _fields(package: Package, config: ClassModel) -> Hits:
    """Look for fields that are none, arguments that name none, and fields that change though they may not."""
    given: dict[str, tuple[FunctionModel, ast.keyword]] = {}
    for method in config.methods.values():
        for call in method.calls:
            if isinstance(call.func, ast.Name) and call.func.id in ("cls", config.name):
                given |= {item.arg: (method, item) for item in call.keywords if item.arg is not None}
    inits = any(name in cls.methods for cls in config.mro for name in ("__init__", "__new__"))
    for name, (method, item) in given.items():
        if name not in config.fields and config.is_dataclass and not inits:
            own = config.own_attributes.get(name)
            if own:
                yield Hit(config.file, own[-1].node, f"{name} has no type, so that it is not a field")
            else:
                yield Hit(method.file, item, f"{config.name} has no field {name}")
    frozen = [
        item.value
        for decorator in config.node.decorator_list
        if isinstance(decorator, ast.Call)
        for item in decorator.keywords
        if item.arg == "frozen" and config.file.value(item.value) is True
    ]
    for file in package.files if frozen else ():
        for node in file.index.nodes(ast.Attribute):
            if isinstance(node.ctx, ast.Store) and node.attr in config.fields and "config" in ast.unparse(node.value):
                yield Hit(config.file, frozen[0], f"{config.name} is frozen, and {node.attr} is set in {file.name}")
                return


FAILING = (
    Example("a plain class", model=("@dataclass\nclass ToyTrainingConfig", "class «ToyTrainingConfig»")),
    Example("a dictionary", model=("@dataclass\nclass ToyTrainingConfig", "class «ToyTrainingConfig»(dict)")),
)
PASSING = (Example("with options", model=("@dataclass\n", "@dataclass(kw_only=True)\n")),)
