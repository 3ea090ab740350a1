"""Base weights are renamed on their way to the engine, LoRA updates are not.

The actor's names and the engine's differ, or ``load_weights`` would not rename them. A LoRA update comes under the
actor's names too; the engine's adapter manager looks for modules of these names, finds none or a few, and says
nothing: the rollout samples with the base model for ever, rewards stay flat, the exit code is 0.

    def load_weights(self, weights):
        return super().load_weights((to_checkpoint_key(name), tensor) for name, tensor in weights)
    # and no map_lora_update_to_engine()

Instead: define ``map_lora_update_to_engine(tensors, peft_config)`` that renames the update, or folds it into the
engine's weights.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.follow import follow
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.one_shot import one_shot_flag
from scaffold.check.model.package import Package
from scaffold.check.model.reach import reachable
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC318"
NAME = "unmapped-lora-update"
SEVERITY = "error"
CHECKLIST = ("pitfall 18",)
APPLIES = Applies()
HELP = "define map_lora_update_to_engine() so that the update gets the engine's names, or fold it into the weights"
HOOK = "map_lora_update_to_engine"
RANK = "actor_rollout_ref.model.lora_rank"
_PRODUCTS = ("addmm", "addmm_", "baddbmm", "matmul", "mm", "bmm", "einsum", "merge_adapter", "get_delta_weight")
_RENAMING = {"replace", "removeprefix", "removesuffix", "partition", "rpartition", "split", "sub", "join"}


def check(package: Package) -> Hits:
    """Look at adapters that rename, in packages whose scripts train LoRA."""
    # "adapter": the engine's own manager was found to know the actor's names; `omni-scaffold remap` proves it.
    if not _trains_lora(package) or recorded(package, "lora", "sync") == "adapter":
        return
    for adapter in package.rollout_adapters:
        loader = adapter.method("load_weights")
        if loader is None or not adapter.resolved or not _renames(loader, adapter):
            continue
        hook = adapter.method(HOOK)
        if hook is None:
            yield Hit(
                loader.file,
                loader.node,
                f"{adapter.name}.load_weights() renames the actor's weights, but no {HOOK}() its LoRA update",
            )
        elif (twice := _folded_and_bound(hook)) is not None:
            yield Hit(hook.file, twice, "the update is folded into the weights, and handed on to be added once more")
        elif (once := one_shot_flag(hook, adapter)) is not None:
            yield Hit(hook.file, once, "every update behind the first one is thrown away here")
        elif (lost := _lost_function(hook)) is not None:
            yield Hit(hook.file, lost, f"{lost.name}() of {HOOK}() is never called, and the update is lost")
        elif _answers_nothing(hook):
            yield Hit(hook.file, hook.node, f"{HOOK}() returns nothing, and the update is lost")
        elif (why := _left_alone(package, hook, loader, adapter)) is not None:
            yield Hit(hook.file, hook.node, why)
        elif _passes_on(hook) and not any(_renames(f, adapter, deep=False) for f in _helpers(package, hook, adapter)):
            yield Hit(hook.file, hook.node, f"{HOOK}() hands the update on under the actor's names")


def _left_alone(package: Package, hook: FunctionModel, loader: FunctionModel, adapter: ClassModel) -> str | None:
    """Return what is wrong where a hook that is to fold or to rename hands every tensor on."""
    reached = reachable(hook, adapter)
    loads = any(attribute_name(call) in ("load_weights", *_PRODUCTS) for f in reached for call in f.calls)
    if loads or any(isinstance(n.op, ast.MatMult) for f in reached for n in f.file.index.nodes(ast.BinOp, f.node)):
        return None
    if not _hands_on(hook):
        return None
    if recorded(package, "lora", "sync") == "fold":
        return f"{HOOK}() hands the update on, and folds nothing: the engine's manager drops what it does not know"
    # Only the actor's prefix comes off here, and load_weights() asks a table of the package for the rest.
    renaming = {f for f in reachable(loader, adapter) if f.cls is None and f.file in package.files}
    taken = [call for call in hook.calls if attribute_name(call) in _RENAMING and isinstance(call.func, ast.Attribute)]
    plain = all(_is_prefix(hook, call) for call in taken) and not hook.nodes(ast.JoinedStr)
    if renaming and taken and plain and not renaming & set(reached):
        return f"{HOOK}() hands the update on under the actor's names, which load_weights() renames"
    return None


def _is_prefix(hook: FunctionModel, call: ast.Call) -> bool:
    """Whether a call takes the actor's prefix off a name."""
    text = hook.file.value(call.args[0]) if call.args else None
    removes = attribute_name(call) in ("removeprefix", "replace", "split", "partition")
    return removes and isinstance(text, str) and text.startswith("transformer")


def _hands_on(hook: FunctionModel) -> bool:
    """Whether what is returned is built of the update's own tensors."""
    if not hook.positional:
        return False
    for item in hook.returns:
        value = item.value.elts[0] if isinstance(item.value, ast.Tuple) and item.value.elts else item.value
        if value is None:
            continue
        value = follow(hook.file, value)
        names = {n.id for n in hook.file.index.nodes(ast.Name, value)}
        if hook.positional[0] in names and isinstance(value, (ast.DictComp, ast.Dict, ast.Name, ast.Call)):
            return True
    return False


def _trains_lora(package: Package) -> bool:
    for script in (*package.launch_scripts, *package.e2e_scripts):
        override = script.override(RANK)
        if override is not None:
            text = str(override.value).strip("'\"")
            if text.isdecimal() and int(text[:9]) > 0:
                return True
    return False


def _renames(start: FunctionModel, adapter: ClassModel, deep: bool = True) -> bool:
    """Whether weights get other names: text is put together, or a function is asked for the name."""
    for function in reachable(start, adapter) if deep else [start]:
        index = function.file.index
        for call in function.calls:
            if attribute_name(call) in _RENAMING and isinstance(call.func, ast.Attribute):
                return True
        raised = [node for kind in (ast.Raise, ast.Assert) for node in index.nodes(kind, function.node)]
        for text in index.nodes(ast.JoinedStr, function.node):
            if not any(index.contains(node, text) for node in raised) and not _logged(function, text):
                return True
    return False


def _logged(function: FunctionModel, text: ast.AST) -> bool:
    calls = [outer for outer in function.file.index.ancestors(text) if isinstance(outer, ast.Call)]
    return any(attribute_name(call) in {"debug", "info", "warning", "error", "print"} for call in calls)


def _helpers(package: Package, hook: FunctionModel, adapter: ClassModel) -> list[FunctionModel]:
    return [function for function in reachable(hook, adapter) if function in side_of(package, "rollout")]


def _folded_and_bound(hook: FunctionModel) -> ast.expr | None:
    """Return what a hook that loads the folded weights hands on, where it is the update as it came."""
    if not hook.positional or not any(attribute_name(call) == "load_weights" for call in hook.calls):
        return None
    stored = [n for n in hook.file.index.nodes(ast.Name, hook.node) if n.id == hook.positional[0]]
    if any(isinstance(node.ctx, ast.Store) for node in stored):
        return None
    for item in hook.returns:
        value = item.value.elts[0] if isinstance(item.value, ast.Tuple) and item.value.elts else None
        if isinstance(value, ast.Name) and value.id == hook.positional[0] and item is hook.returns[-1]:
            return value
    return None


def _lost_function(hook: FunctionModel) -> ast.FunctionDef | None:
    """Return a function that is defined inside of the hook and read nowhere."""
    index = hook.file.index
    read = {node.id for node in index.nodes(ast.Name, hook.node) if isinstance(node.ctx, ast.Load)}
    inner = [node for node in index.nodes(ast.FunctionDef, hook.node) if node is not hook.node]
    return next((node for node in inner if node.name not in read), None)


def _answers_nothing(hook: FunctionModel) -> bool:
    """Whether every path ends without a value: the engine unpacks two."""
    generator = any(hook.nodes(kind) for kind in (ast.Yield, ast.YieldFrom))
    values = [item.value for item in hook.returns]
    return not generator and all(v is None or (isinstance(v, ast.Constant) and v.value is None) for v in values)


def _passes_on(hook: FunctionModel) -> bool:
    """Whether every path returns the tensors as they came, and nothing is loaded on the way."""
    if not hook.positional or any(attribute_name(call) == "load_weights" for call in hook.calls):
        return False
    tensors = hook.positional[0]
    stored = [n for n in hook.file.index.nodes(ast.Name, hook.node) if n.id == tensors and isinstance(n.ctx, ast.Store)]
    values = [item.value for item in hook.returns]
    return (
        bool(values)
        and not stored
        and all(
            isinstance(value, ast.Tuple)
            and len(value.elts) == 2
            and isinstance(value.elts[0], ast.Name)
            and value.elts[0].id == tensors
            for value in values
        )
    )


FAILING = (
    Example(
        "folded and bound",
        rollout=(
            (
                'names = {name: to_checkpoint_key(name.removeprefix("transformer.")) for name in tensors}\n'
                "        return {names[name]: tensor for name, tensor in tensors.items()}"
            ),
            (
                "self.load_weights((to_checkpoint_key(name), tensor) for name, tensor in tensors.items())\n        return «tensors»"
            ),
        ),
    ),
    Example(
        "no hook",
        rollout=[
            (" load_weights", " «load_weights»"),
            (
                (
                    "\n    def map_lora_update_to_engine(self, tensors, peft_config):\n"
                    '        names = {name: to_checkpoint_key(name.removeprefix("transformer.")) for name in tensors}\n'
                    "        return {names[name]: tensor for name, tensor in tensors.items()}, peft_config\n"
                ),
                "",
            ),
        ],
    ),
    Example(
        "the hook under another name",
        rollout=[(" load_weights", " «load_weights»"), ("map_lora_update_to_engine", "map_lora_to_engine")],
    ),
)
PASSING = (
    Example(
        "renamed in a helper",
        rollout=(
            (
                'names = {name: to_checkpoint_key(name.removeprefix("transformer.")) for name in tensors}\n'
                "        return {names[name]: tensor for name, tensor in tensors.items()}"
            ),
            "return dict(self._checkpoint_names(tensors.items()))",
        ),
    ),
    Example(
        "the engine's own adapters know the names",
        rollout=(
            (
                "    def map_lora_update_to_engine(self, tensors, peft_config):\n"
                '        names = {name: to_checkpoint_key(name.removeprefix("transformer.")) for name in tensors}\n'
                "        return {names[name]: tensor for name, tensor in tensors.items()}, peft_config\n\n"
            ),
            "",
        ),
        spec='[lora]\nsync = "adapter"\n',
    ),
    Example(
        "no script trains LoRA",
        rollout=(
            (
                "    def map_lora_update_to_engine(self, tensors, peft_config):\n"
                '        names = {name: to_checkpoint_key(name.removeprefix("transformer.")) for name in tensors}\n'
                "        return {names[name]: tensor for name, tensor in tensors.items()}, peft_config\n\n"
            ),
            "",
        ),
        launch=("    actor_rollout_ref.model.lora_rank=64\n", ""),
        e2e=("lora_rank=8", "lora_rank=0"),
    ),
)
