"""One module stands where the checkpoint has several: under two names, or for all layers of a list.

``self.mlp_gen = self.mlp`` builds no second block. ``state_dict()`` has both names and loads both, the second over the
first, so that one stream goes through the other's weights, and training one trains both. ``[Layer(config)] * n`` is one
layer that runs n times.

    self.mlp = ToyMLP(config)
    self.mlp_gen = self.mlp

Instead: build each module by a call of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.classes import Attribute, ClassModel
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.package import Package
from scaffold.check.model.ported_code import written_files
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.twins import twin_suffixes
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC151"
NAME = "shared-module"
SEVERITY = "error"
CHECKLIST = ("M8", "pitfall 23")
APPLIES = Applies(non_diffusers=True)
HELP = "build each module by a call of its own"
_LISTS = ("torch.nn.ModuleList", "torch.nn.Sequential")


def check(package: Package) -> Hits:
    """Look at twins that are one object, and at lists of which all elements are."""
    suffixes, written = twin_suffixes(package), written_files(package)
    for cls in dict.fromkeys(part.owner for part in package.module_tree):
        if cls.file not in written:
            continue
        attributes = cls.own_instance_attributes
        for suffix in suffixes:
            for name in attributes:
                one, two = attributes[name], attributes.get(f"{name}{suffix}", [])
                if len(one) == len(two) == 1 and (text := _shared(cls, one[0], two[0])) is not None:
                    yield Hit(cls.file, text, f"{name} and {name}{suffix} are one module")
        for assigned in (assigned for found in attributes.values() for assigned in found):
            for element in _repeated(cls.file, assigned.value):
                yield Hit(cls.file, element, f"all elements of {assigned.name} are one module")


def _shared(cls: ClassModel, one: Attribute, two: Attribute) -> ast.AST | None:
    """Return where two attributes are given the same object."""
    for first, second in ((one, two), (two, one)):
        value = second.value
        if isinstance(value, ast.Attribute) and value.attr == first.name and isinstance(value.value, ast.Name):
            bound = second.method.bound if second.method is not None else None
            return value if value.value.id == bound and _is_built(cls.file, first.value) else None
    if one.value is None or two.value is None:
        return None
    if one.value is two.value:
        return two.node if _is_built(cls.file, one.value) else None
    method = one.method
    if isinstance(one.value, ast.Name) and isinstance(two.value, ast.Name) and method is not None:
        bindings = reaching(method, one.value)
        same = method == two.method and len(bindings) == 1 and bindings == reaching(method, two.value)
        return two.value if same and _is_built(cls.file, bindings[0].value) else None
    return None


def _is_built(file: PythonFile, value: ast.expr | None) -> bool:
    """Whether a value is a module that is built there."""
    if not isinstance(value, ast.Call):
        return False
    cls = file.project.class_of(file, value.func)
    if cls is not None:
        return bool(cls.derives_from("Module", "NonDiffusersModelBase"))
    name = file.qualified(value.func)
    return (
        name is not None
        and name.startswith("torch.nn.")
        and name not in ("torch.nn.Parameter", "torch.nn.SiLU", "torch.nn.GELU")
    )


def _repeated(file: PythonFile, value: ast.expr | None) -> Iterator[ast.expr]:
    """Yield what stands several times in a list of modules."""
    if not isinstance(value, ast.Call) or file.qualified(value.func) not in _LISTS:
        return
    for given in value.args:
        listed = given.value if isinstance(given, ast.Starred) else given
        if isinstance(listed, ast.BinOp) and isinstance(listed.op, ast.Mult):
            for side in (listed.left, listed.right):
                if isinstance(side, (ast.List, ast.Tuple)) and any(_holds(file, item) for item in side.elts):
                    yield listed
        elif isinstance(listed, (ast.ListComp, ast.GeneratorExp)) and isinstance(listed.elt, ast.Name):
            bindings = file.scopes.lookup(listed.elt.id, listed.elt)
            if len(bindings) == 1 and _is_built(file, bindings[0].value):
                yield listed.elt


def _holds(file: PythonFile, item: ast.expr) -> bool:
    if not isinstance(item, ast.Name):
        return _is_built(file, item)
    bindings = file.scopes.lookup(item.id, item)
    return len(bindings) == 1 and _is_built(file, bindings[0].value)


_LAYERS = "nn.ModuleList(ToyLayer(config) for _ in range(config.num_hidden_layers))"
_BOTH = "        self.mlp = ToyMLP(config)\n        self.mlp_gen = ToyMLP(config)\n"


def _layers(title: str, text: str, before: str = "") -> Example:
    line = f"        self.layers = {_LAYERS}\n"
    return Example(title, {"model": [(line, before + line.replace(_LAYERS, text))]})


FAILING = (
    Example("one for both streams", {"model": [(_BOTH, _BOTH.replace("gen = ToyMLP(config)", "gen = «self.mlp»"))]}),
    Example(
        "by a local name",
        {"model": [(_BOTH, "        mlp = ToyMLP(config)\n        self.mlp = mlp\n        self.mlp_gen = «mlp»\n")]},
    ),
    Example("in one line", {"model": [(_BOTH, "        self.mlp = «self.mlp_gen» = ToyMLP(config)\n")]}),
    _layers("a list times a number", "nn.ModuleList(«[ToyLayer(config)] * config.num_hidden_layers»)"),
    _layers(
        "one layer, listed again and again",
        "nn.ModuleList(«layer» for _ in range(config.num_hidden_layers))",
        "        layer = ToyLayer(config)\n",
    ),
)
PASSING = (
    Example("each its own"),
    Example(
        "an activation is shared",
        {
            "model": [
                (
                    _BOTH,
                    _BOTH + "        self.act = nn.SiLU()\n        self.act_gen = self.act\n",
                )
            ]
        },
        also=("OSC121",),
    ),
    Example(
        "copies",
        {
            "model": [
                (
                    f"        self.layers = {_LAYERS}\n",
                    "        layer = ToyLayer(config)\n"
                    "        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(2))\n",
                ),
                ("import json\n", "import copy\nimport json\n"),
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
