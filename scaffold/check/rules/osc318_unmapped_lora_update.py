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
import re
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.module_paths import is_target, module_paths
from scaffold.check.model.package import Package
from scaffold.check.model.python import ClassModel, FunctionModel
from scaffold.check.model.reach import reachable
from scaffold.check.model.shell import MODEL, lora_rank, names, truth
from scaffold.check.rule import Hit, Hits

ID = "OSC318"
NAME = "unmapped-lora-update"
SEVERITY = "error"
CHECKLIST = ("pitfall 18",)
HELP = "define map_lora_update_to_engine() so that the update gets the engine's names, or fold it into the weights"
HOOK = "map_lora_update_to_engine"
_RENAMING = {"replace", "removeprefix", "removesuffix", "partition", "rpartition", "split", "sub", "subn", "join"}
# What the trainer puts before every name.
_TRAINERS = "transformer."


def check(package: Package) -> Hits:
    """Look at adapters that rename, in packages whose scripts train LoRA."""
    # "adapter": the engine's own manager was found to know the actor's names; `omni-scaffold remap` proves it.
    scripts = package.scripts
    adapted = [script for script in scripts if lora_rank(script)]
    # Merged by the trainer, the update is a push of full weights.
    adapted = [
        s for s in adapted if truth(value.value if (value := s.override(f"{MODEL}lora.merge")) else None) is not True
    ]
    if not adapted or package.facts.text("lora", "sync") in ("adapter", "merge"):
        return
    for adapter in package.rollout_adapters:
        loader = adapter.method("load_weights")
        if loader is None or not adapter.resolved or not _renames(loader, adapter):
            continue
        hook = adapter.method(HOOK)
        if hook is None and _keeps_targets(package, loader, adapter):
            continue
        if hook is None:
            text = f"{adapter.name}.load_weights() renames the actor's weights, but no {HOOK}() its LoRA update"
            yield Hit(loader.file, loader.node, text)
        elif not hook.nodes(ast.Yield) and not any(_is_something(item.value) for item in hook.returns):
            yield Hit(hook.file, hook.node, f"{HOOK}() returns nothing, and the update is lost")
        elif not _renames(hook, adapter) and len(reachable(hook, adapter)) == 1 and len(hook.node.body) <= 2:
            yield Hit(hook.file, hook.node, f"{HOOK}() hands the update on under the actor's names")


def _keeps_targets(package: Package, loader: FunctionModel, adapter: ClassModel) -> bool:
    """Whether no pattern of the renaming fits a module that any script puts LoRA on; no where the text does not tell."""
    module = package.training_module
    scripts = package.scripts
    given = [item for script in scripts if (item := script.override(f"{MODEL}target_modules")) is not None]
    targets = [names(item.value) for item in given]
    patterns = _patterns(loader, adapter)
    if module is None or patterns is None or None in targets:
        return False
    modules = module_paths(module).modules
    trained = [name for name in modules for target in targets for end in target or () if is_target(name, end)]
    return bool(trained) and not any(_fits(pattern, f"{name}.weight") for pattern in patterns for name in trained)


def _patterns(loader: FunctionModel, adapter: ClassModel) -> set[str] | None:
    """Return the strings that weights' names are compared with; None where names are put together in another way."""
    found: set[str] = set()
    for function in reachable(loader, adapter):
        file = function.file
        for text in file.index.nodes(ast.JoinedStr, function.node):
            found |= {str(part.value) for part in text.values if isinstance(part, ast.Constant)}
        for sum_ in file.index.nodes(ast.BinOp, function.node):
            found |= {value for side in (sum_.left, sum_.right) if isinstance(value := file.value(side), str)}
        if found - {_TRAINERS}:
            return None
    for function in reachable(loader, adapter):
        for kind in (ast.Constant, ast.Name):
            for node in function.file.index.nodes(kind, function.node):
                if not isinstance(node, ast.Name) or isinstance(node.ctx, ast.Load):
                    found |= set(_strings(function.file.value(node)))
    return found - {_TRAINERS}


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list, set, dict)):
        for item in value.items() if isinstance(value, dict) else value:
            yield from _strings(item)


def _fits(pattern: str, name: str) -> bool:
    """Whether a name may be changed by a pattern: a part of it, or a regular expression."""
    try:
        return pattern in name or re.search(pattern, name) is not None
    except re.error:
        return False


def _is_something(value: ast.expr | None) -> bool:
    return value is not None and not (isinstance(value, ast.Constant) and value.value is None)


def _renames(start: FunctionModel, adapter: ClassModel) -> bool:
    """Whether weights get other names: text is put together, or a function is asked for the name."""
    for function in reachable(start, adapter):
        index = function.file.index
        if any(attribute_name(call) in _RENAMING and _changes(function, call) for call in function.calls):
            return True
        sums = [node for node in index.nodes(ast.BinOp, function.node) if isinstance(node.op, ast.Add)]
        if any(
            isinstance(s, ast.Subscript) and isinstance(s.slice, ast.Slice) for n in sums for s in (n.left, n.right)
        ):
            return True
        told = [node for kind in (ast.Raise, ast.Assert, ast.Expr) for node in index.nodes(kind, function.node)]
        for text in index.nodes(ast.JoinedStr, function.node):
            fixed = "".join(str(part.value) for part in text.values if isinstance(part, ast.Constant))
            if fixed != _TRAINERS and not any(index.contains(node, text) and not _appends(node) for node in told):
                return True
    return False


def _changes(function: FunctionModel, call: ast.Call) -> bool:
    """Whether a call of a string's method gives another name than that without the trainer's prefix."""
    if not isinstance(call.func, ast.Attribute) or (function.file.qualified(call.func) or "").startswith("os."):
        return False
    return not (len(call.args) == 1 and function.file.value(call.args[0]) == _TRAINERS)


def _appends(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Yield) or (isinstance(call, ast.Call) and attribute_name(call) == "append")


FAILING = (
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
_HOOK = (
    "\n    def map_lora_update_to_engine(self, tensors, peft_config):\n"
    '        names = {name: to_checkpoint_key(name.removeprefix("transformer.")) for name in tensors}\n'
    "        return {names[name]: tensor for name, tensor in tensors.items()}, peft_config\n"
)
_RANK = "    actor_rollout_ref.model.lora_rank="
_MERGED = f"    actor_rollout_ref.model.lora.merge=True%s\n{_RANK}"
PASSING = (
    Example(
        "merged by the trainer",
        rollout=(_HOOK, ""),
        launch=(_RANK, _MERGED % ""),
        e2e=(_RANK, _MERGED % " \\"),
    ),
    Example(
        "the trainer's prefix alone",
        rollout=[
            (_HOOK, ""),
            ('to_checkpoint_key(name.removeprefix("transformer."))', 'name.removeprefix("transformer.")'),
        ],
        also="OSC409",
    ),
    Example(
        "names of other modules alone",
        model=[
            (
                (
                    "def to_checkpoint_key(name: str) -> str:\n"
                    "    for source, target in sorted(KEY_MAP, key=lambda rule: -len(rule[1])):\n"
                    "        if name.startswith(target):\n            return source + name[len(target) :]\n    raise KeyError(name)\n"
                ),
                (
                    'TO_CHECKPOINT = ((r"^time_mlp\\.", "time_embedder."), ("vae2llm.", "x_embedder."))\n\n\n'
                    "def to_checkpoint_key(name: str) -> str:\n"
                    "    for pattern, source in TO_CHECKPOINT:\n"
                    "        renamed, count = re.subn(pattern, source, name)\n"
                    "        if count:\n            return renamed\n    return name\n"
                ),
            ),
            ("import os\n", "import os\nimport re\n"),
        ],
        rollout=(
            (
                "\n    def map_lora_update_to_engine(self, tensors, peft_config):\n"
                '        names = {name: to_checkpoint_key(name.removeprefix("transformer.")) for name in tensors}\n'
                "        return {names[name]: tensor for name, tensor in tensors.items()}, peft_config\n"
            ),
            "",
        ),
    ),
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
)
