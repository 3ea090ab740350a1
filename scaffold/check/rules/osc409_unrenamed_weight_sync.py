"""The actor's weights reach the engine under names that it does not know.

Loading renames the checkpoint's keys for training. On the way back the engine wants its own names again: without that,
parameters are not found and the rollout samples with the weights of the step before, or with the first ones for ever.
Whether the names are the right ones, `verify` measures (``rollout-weight-sync-velocity``).

    class ToyPipelineWithLogProb(ToyPipeline): …         # no load_weights(): "transformer.layers.0…" is passed on

Instead: override ``load_weights()`` and rename with the inverse of the table on the way to ``super()``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.key_tables import key_tables, loading_functions
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.reach import reachable
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC409"
NAME = "unrenamed-weight-sync"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 21", "pitfall 18")
APPLIES = Applies(non_diffusers=True)
HELP = "override load_weights() and give the actor's weights the names that the engine loads"
_CUTTING = ("removeprefix", "replace", "partition", "sub")


def check(package: Package) -> Hits:
    """Look at the names that ``load_weights`` passes on, where loading renames them."""
    tables = {table.name for table in key_tables(package) if any(r.target not in (None, r.source) for r in table.rows)}
    renaming = next((f for f in loading_functions(package) if _renames(f, tables)), None)
    if renaming is None or renaming.file not in package.files:
        return
    for adapter in package.rollout_adapters:
        upstream = any(name.startswith("vllm_omni.") for name in adapter.external)
        if adapter.file not in package.files or not upstream or not adapter.resolved:
            continue
        loader = adapter.method("load_weights")
        if loader is None and not any("weight" in name for cls in adapter.mro for name in cls.methods):
            text = f"{adapter.name} has no load_weights(): the engine gets the names that {renaming.name}() gives"
            yield Hit(adapter.file, adapter.node, text)
        elif loader is not None and loader.file in package.files:
            if not any(_renames(function, tables, written=True) for function in reachable(loader, adapter)):
                yield Hit(
                    loader.file, loader.node, f"{adapter.name}.load_weights() leaves the actor's names as they are"
                )


def _renames(function: FunctionModel, tables: set[str], written: bool = False) -> bool:
    """Whether a function reads a table of names, or cuts keys that it goes through.

    Args:
        written: also a name that is put together from texts counts.
    """
    index = function.file.index
    if any(node.id in tables for node in index.nodes(ast.Name, function.node)):
        return True
    if written:
        return any(isinstance(n.value, str) and n.value.endswith(".") for n in index.nodes(ast.Constant, function.node))
    loops = [n for loop in index.nodes(ast.For, function.node) for n in ast.walk(loop.target)]
    keys = {node.id for node in loops if isinstance(node, ast.Name)}
    cuts = [n.value for n in index.nodes(ast.Subscript, function.node) if isinstance(n.slice, ast.Slice)]
    if any(isinstance(cut, ast.Name) and cut.id in keys for cut in cuts):
        return True
    for call in function.calls:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(owner, ast.Name) and owner.id in keys and attribute_name(call) in _CUTTING:
            return True
    return False


FAILING = (
    Example(
        "left as they are",
        rollout=[
            (" load_weights", " «load_weights»"),
            (
                (
                    '            if name.startswith("transformer."):\n                name = to_checkpoint_key(name.removeprefix("transformer."))\n'
                ),
                "",
            ),
        ],
    ),
)
_CHOSEN = """            for name in file.keys():
                if not name.startswith("vit."):
                    state[name] = file.get_tensor(name)
"""
PASSING = (
    Example("renamed on the way"),
    Example(
        "names that nothing changes",
        model=[
            (
                "            for source in file.keys():\n                target = to_training_key(source)\n                if target is not None:\n                    state[target] = file.get_tensor(source)\n",
                _CHOSEN,
            )
        ],
        rollout=[
            (
                "    def load_weights(self, weights) -> set[str]:\n        return super().load_weights(self._checkpoint_names(weights))\n\n    @staticmethod\n",
                "",
            ),
            (
                '    def _checkpoint_names(weights):\n        for name, tensor in weights:\n            if name.startswith("transformer."):\n                name = to_checkpoint_key(name.removeprefix("transformer."))\n            yield name, tensor\n\n',
                "",
            ),
        ],
    ),
)
