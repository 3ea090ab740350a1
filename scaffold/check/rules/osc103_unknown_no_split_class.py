"""``_no_split_modules`` is missing, or names a class that is not a layer of the training module.

The trainer compares class names. One that no module of the model has wraps nothing, and nobody says so: the model is
sharded as one unit. One that is only a part of a layer leaves the rest of the layer to the root unit.

    _no_split_modules = ["ToyDecoderLayer"]      # the layers are ToyLayer

Instead: name the class of the elements of the layer list, exactly as it is written.
"""

from __future__ import annotations

import ast
from difflib import get_close_matches

from scaffold.check.example import Example
from scaffold.check.model.module_paths import module_paths
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC103"
NAME = "unknown-no-split-class"
SEVERITY = "error"
NO_SPLIT = "_no_split_modules"
CHECKLIST = ("M3", "pitfall 32")
APPLIES = Applies(non_diffusers=True)
HELP = f'name the class of the layers: {NO_SPLIT} = ["…Layer"]'


def check(package: Package) -> Hits:
    """Compare the names with the classes that the module builds."""
    module = package.training_module
    if module is None or not module.derives_from("NonDiffusersModelBase") or module.instance_attributes(NO_SPLIT):
        return
    # What the base class says is only a default.
    own = [
        c.own_attributes[NO_SPLIT][-1] for c in module.mro if c.file in package.files and NO_SPLIT in c.own_attributes
    ]
    if not own:
        if module.resolved:
            yield Hit(module.file, module.node, f"{module.name} does not name its layers in {NO_SPLIT}", HELP)
        return
    found = own[0]
    names = found.file.value(found.value) if found.value is not None else None
    if found.value is None or names is None or isinstance(names, str) or names in ([], ()):
        what = "is one string, and its letters are the names" if isinstance(names, str) else "names no class"
        yield Hit(found.file, found.value or found.node, f"{NO_SPLIT} of {module.name} {what}", HELP)
        return
    if not isinstance(names, (list, tuple, set)) or not module_paths(module).complete:
        return
    built = [
        part.cls.node.name if part.cls else (part.qualified or "").rpartition(".")[2] for part in package.module_tree
    ]
    layers = list(dict.fromkeys(part.cls.node.name for part in package.module_tree if part.repeated and part.cls))
    for name in names:
        if not isinstance(name, str) or name in layers:
            continue
        place = _element(found.value, name)
        near = get_close_matches(name, layers or built, n=1) or layers[:1]
        help = f'write "{near[0]}"' if near else "name the class of the layers"
        if name not in built:
            yield Hit(found.file, place, f"no part of {module.name} is of a class {name!r}", help)
        elif layers:
            yield Hit(found.file, place, f"{name!r} is not a class of a layer list of {module.name}", help)


def _element(value: ast.expr, name: str) -> ast.expr:
    for node in ast.walk(value):
        if isinstance(node, ast.Constant) and node.value == name:
            return node
    return value


_LAYERS = "        self.layers = nn.ModuleList(ToyLayer(config) for _ in range(config.num_hidden_layers))\n"
_FILLED = """        self.layers = nn.ModuleList()
        for _ in range(config.num_hidden_layers):
            self.layers.append(%s(config))
"""
_IN_TABLE = ("class TimestepEmbedder(", 'BLOCKS = {"toy": ToyLayer}\n\n\nclass TimestepEmbedder(')
_NAMED = ('"ToyLayer"', '«"ToyBlock"»')
FAILING = (
    Example("of a list that a loop fills", model=[(_LAYERS, _FILLED % "ToyLayer"), _NAMED]),
    Example("of blocks in a table of the package", model=[(_LAYERS, _FILLED % 'BLOCKS["toy"]'), _IN_TABLE, _NAMED]),
    Example("annotated, not set", model=('_no_split_modules = ["ToyLayer"', "«_no_split_modules»: list[str")),
    Example("a string", model=('["ToyLayer"]', '«"ToyLayer"»')),
    Example("a class that is not there", model=('"ToyLayer"', '«"ToyDecoderLayer"»')),
    Example("a part of a layer", model=('"ToyLayer"', '«"ToyAttention"»')),
    Example("one of two", model=('ToyLayer"]', 'ToyLayer", «"ToyBlock"»]')),
)
PASSING = (
    Example("computed from the class", model=('"ToyLayer"', "ToyLayer.__name__")),
    Example("a list that a loop fills", model=(_LAYERS, _FILLED % "ToyLayer")),
    Example("blocks in a table of the package", model=[(_LAYERS, _FILLED % 'BLOCKS["toy"]'), _IN_TABLE]),
    Example(
        "blocks in a table that is not in the tree",
        model=[
            ("import torch\n", "import torch\nfrom toy_blocks import BLOCKS\n"),
            (_LAYERS, _FILLED % "BLOCKS[config.kind]"),
            ('"ToyLayer"', '"ToyBlock"'),
        ],
        also="OSC121",
    ),
)
