"""The actor's weights reach the engine under names that it does not know.

Loading renames the checkpoint's keys for training. On the way back the engine wants the checkpoint's names again: without
the inverse, or with the table of loading in its place, or with the inverse applied twice, parameters are not found and
the rollout samples with the weights of the step before, or with the first ones for ever.

    def load_weights(self, weights):
        return super().load_weights(weights)             # "transformer.layers.0…" is no name of the checkpoint

Instead: rename with the inverse of the table on the way to ``super().load_weights()``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.example_keys import recorded_spec
from scaffold.check.model.calls import attribute_name, resolve
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.key_tables import key_tables
from scaffold.check.model.package import Package
from scaffold.check.model.reach import reachable
from scaffold.check.model.ways_back import wrong_sent_names
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC409"
NAME = "unrenamed-weight-sync"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 21", "pitfall 18")
APPLIES = Applies(non_diffusers=True)
_CUTTING = ("removeprefix", "replace", "partition")
HELP = "give the actor's weights the checkpoint's names once, with the inverse of the loading table"


def check(package: Package) -> Hits:
    """Look for what ``load_weights`` makes of the names."""
    yield from _saved(package)
    yield from _left_out(package)
    told = list(_mapped(package))
    yield from told
    for function, text in wrong_sent_names(package) if not told else ():
        yield Hit(function.file, function.node, text)


def _saved(package: Package) -> Hits:
    """Look for weights that are saved without their adapters, under the names that adapters give to layers."""
    module = package.training_module
    save = module.method("save_pretrained") if module is not None else None
    if module is None or save is None or save.file not in package.files:
        return
    functions = reachable(save, module)
    texts = [n for f in functions for n in f.file.index.nodes(ast.Constant, f.node) if isinstance(n.value, str)]
    if any("base_layer" in str(node.value) for node in texts) or any(
        name in ("unload", "merge_and_unload", "merge_adapter", "get_base_model", "base_layer")
        for function in functions
        for name in (node.attr for node in function.file.index.nodes(ast.Attribute, function.node))
    ):
        return
    for node in save.file.index.nodes(ast.Compare, save.node):
        left = save.file.value(node.left)
        if isinstance(left, str) and left.strip(".") == "lora_" and isinstance(node.ops[0], ast.NotIn):
            text = "adapters are left out here, and the layers below them keep '.base_layer.' in their names"
            yield Hit(save.file, node, text, "take '.base_layer' out of the names")


def _left_out(package: Package) -> Hits:
    """Look for adapters that leave loading to upstream, though the training names are the package's own."""
    renaming = _renaming(package)
    for adapter in package.rollout_adapters if renaming is not None else ():
        own = [name for cls in adapter.mro for name in cls.methods if "weight" in name]
        upstream = any(name.startswith("vllm_omni.") for name in adapter.external)
        if adapter.file in package.files and renaming is not None and not own and upstream and adapter.resolved:
            yield Hit(
                adapter.file,
                adapter.node,
                f"{adapter.name} has no load_weights(): the actor's weights come under the names that "
                f"{renaming.name}() gives them, which the engine does not know",
                "override load_weights() and give the actor's weights the names that the engine loads",
            )


def _renaming(package: Package) -> FunctionModel | None:
    """Return a function that loading gets to and that renames the keys of a checkpoint, None without one."""
    module = package.training_module
    loader = module.method("from_pretrained") if module is not None else None
    if module is None or loader is None or loader.file not in package.files:
        return None
    tables = {table.name for table in key_tables(package) if any(r.target not in (None, r.source) for r in table.rows)}
    for function in reachable(loader, module):
        index = function.file.index
        if any(name.id in tables for name in index.nodes(ast.Name, function.node)):
            return function
        keys = {
            n.id
            for loop in index.nodes(ast.For, function.node)
            for n in ast.walk(loop.target)
            if isinstance(n, ast.Name)
        }
        for call in function.calls:
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if isinstance(owner, ast.Name) and owner.id in keys and attribute_name(call) in _CUTTING:
                return function
        for part in index.nodes(ast.Subscript, function.node):
            cut = isinstance(part.slice, ast.Slice) and isinstance(part.slice.lower, ast.Call)
            if cut and isinstance(part.value, ast.Name) and part.value.id in keys:
                return function
    return None


def _mapped(package: Package) -> Hits:
    tables = [table for table in key_tables(package) if not table.ignores]
    renames = any(row.target is not None and row.source != row.target for table in tables for row in table.rows)
    if not renames:
        return
    forth, back = _functions(package, {table.name for table in tables})
    for adapter in package.rollout_adapters:
        method = adapter.method("load_weights")
        if adapter.file not in package.files or method is None or method.file not in package.files:
            continue
        functions = [f for f in reachable(method, adapter) if f.file in package.files]
        calls = [(f, call, resolve(f.file, call, adapter)) for f in functions for call in f.calls]
        for function, call, found in calls:
            if found in forth and function not in forth | back and function.file is method.file:
                yield Hit(
                    function.file,
                    call,
                    f"{found.name}() leads to the training names, the engine wants the checkpoint's",
                )
            inner = (
                resolve(function.file, call.args[0], adapter)
                if call.args and isinstance(call.args[0], ast.Call)
                else None
            )
            if found in back and inner == found:
                yield Hit(function.file, call, f"{found.name}() is applied twice")
        used = any(found in back or found in forth for _, _, found in calls)
        loops = any(
            n.id in {table.name for table in tables} for f in functions for n in f.file.index.nodes(ast.Name, f.node)
        )
        if back and not used and not loops:
            yield Hit(method.file, method.node, f"{adapter.name}.load_weights() leaves the actor's names as they are")


def _functions(package: Package, tables: set[str]) -> tuple[set[FunctionModel], set[FunctionModel]]:
    """Return the functions that rename with the tables: to the training names, and back."""
    forth: set[FunctionModel] = set()
    back: set[FunctionModel] = set()
    for function in package.functions:
        if function.cls is not None or len(function.positional) != 1:
            continue
        if not any(node.id in tables for node in function.file.index.nodes(ast.Name, function.node)):
            continue
        direction = _direction(function, tables)
        (forth if direction == "forth" else back if direction == "back" else set()).add(function)
    return forth, back


def _direction(function: FunctionModel, tables: set[str]) -> str | None:
    """Say which side of the rows a name is compared with."""
    for loop in function.file.index.nodes(ast.For, function.node):
        if not (isinstance(loop.target, ast.Tuple) and len(loop.target.elts) == 2):
            continue
        if not any(isinstance(n, ast.Name) and n.id in tables for n in function.file.index.walk(loop.iter)):
            continue
        first, second = (item.id if isinstance(item, ast.Name) else "" for item in loop.target.elts)
        for call in function.file.index.nodes(ast.Call, loop):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "startswith" and call.args:
                asked = call.args[0]
                if isinstance(asked, ast.Name) and asked.id in (first, second):
                    return "forth" if asked.id == first else "back"
    annotation = ast.unparse(function.node.returns) if function.node.returns is not None else ""
    return "forth" if "None" in annotation else None


_RENAMED = '                name = to_checkpoint_key(name.removeprefix("transformer."))\n'
_OWN = """    def load_weights(self, weights) -> set[str]:
        return super().load_weights(self._checkpoint_names(weights))

    @staticmethod
    def _checkpoint_names(weights):
        for name, tensor in weights:
            if name.startswith("transformer."):
                name = to_checkpoint_key(name.removeprefix("transformer."))
            yield name, tensor

"""
_SAVE = """    def save_pretrained(self, save_directory, **kwargs):
        self._save_config(save_directory)
        state = {{{} for name, tensor in self.state_dict().items() if {}}}
        save_file(state, os.path.join(save_directory, "ema.safetensors"))

"""
_BEFORE = "    @classmethod\n    def from_pretrained(cls, model_path: str, torch_dtype"
_KEPT = '".lora_" not in name'
FAILING = (
    Example(
        "saved under the adapter's names",
        {"model": [(_BEFORE, _SAVE.format("to_checkpoint_key(name): tensor", f"«{_KEPT}»") + _BEFORE)]},
    ),
    Example(
        "another prefix is asked for",
        {
            "spec": recorded_spec(),
            "rollout": [
                ('if name.startswith("transformer."):', 'if name.startswith("model."):'),
                ("def _checkpoint_names(", "def «_checkpoint_names»("),
            ],
        },
    ),
    Example(
        "with the actor's prefix",
        {
            "spec": recorded_spec(),
            "rollout": [
                (_RENAMED, "                name = to_checkpoint_key(name)\n"),
                ("def _checkpoint_names(", "def «_checkpoint_names»("),
            ],
        },
    ),
    Example(
        "left as they are",
        {
            "rollout": [
                (
                    '            if name.startswith("transformer."):\n                name = to_checkpoint_key(name.removeprefix("transformer."))\n',
                    "",
                ),
                ("    def load_weights(self", "    def «load_weights»(self"),
            ]
        },
    ),
    Example(
        "no load_weights",
        {
            "rollout": [
                (_OWN, ""),
                ("class ToyPipelineWithLogProb(", "class «ToyPipelineWithLogProb»("),
            ]
        },
    ),
    Example(
        "the wrong way",
        {
            "rollout": [
                (
                    '                name = to_checkpoint_key(name.removeprefix("transformer."))',
                    '                name = «to_training_key(name.removeprefix("transformer."))»',
                ),
                ("import to_checkpoint_key", "import to_checkpoint_key, to_training_key"),
            ]
        },
        also=("OSC318",),
    ),
    Example(
        "twice",
        {
            "rollout": [
                (
                    '                name = to_checkpoint_key(name.removeprefix("transformer."))',
                    '                name = «to_checkpoint_key(to_checkpoint_key(name.removeprefix("transformer.")))»',
                )
            ]
        },
    ),
)
PASSING = (
    Example(
        "saved under the layers' own names",
        {
            "model": [
                (
                    _BEFORE,
                    _SAVE.format("to_checkpoint_key(name.replace('.base_layer.', '.')): tensor", _KEPT) + _BEFORE,
                )
            ]
        },
    ),
    Example("renamed once"),
    Example("renamed once, where the names are recorded", {"spec": recorded_spec()}),
    Example(
        "with the prefix of the engine's loader",
        {
            "spec": recorded_spec(),
            "rollout": [(_RENAMED, _RENAMED.replace("name = to", 'name = "model." + to'))],
        },
    ),
    Example(
        "cut off in another way",
        {
            "spec": recorded_spec(),
            "rollout": [(_RENAMED, '                name = to_checkpoint_key(name.partition(".")[2])\n')],
        },
    ),
    Example("of diffusers", base="diffusers"),
)
