"""The micro-batch: keys that the training adapter reads of it, and who puts them there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from scaffold.check.model.data_rows import rows
from scaffold.check.model.keys import KeyRead, keys_read
from scaffold.check.model.package import RECIPES, Package
from scaffold.check.model.python import PythonFile
from scaffold.check.model.sides import side_of
from scaffold.files.layout import PIPELINES

# Keys that verl's data loader, verl-omni's agent loop and its trainers put into every batch.
STANDARD = {
    "prompts", "responses", "attention_mask", "input_ids", "position_ids", "raw_prompt", "all_latents", "all_timesteps",
    "all_log_probs", "rollout_log_probs", "old_log_probs", "ref_log_prob", "ref_prev_sample_mean", "advantages",
    "old_prev_sample_mean", "returns", "rm_scores", "token_level_scores", "sample_level_scores", "sample_level_rewards",
    "rollout_is_weights", "uid", "index", "data_source", "reward_model", "extra_info", "ability", "__num_turns__",
    "agent_name", "tools_kwargs", "interaction_kwargs", "global_steps", "height", "width", "vae_scale_factor",
    "sp_size",
    "loss_mask", "num_timesteps", "teacher_prev_sample_mean", "reward_extra_info", "multi_modal_inputs", "prompt",
}  # fmt: skip
_READING = {
    "prepare_model_inputs": "micro_batch",
    "prepare_condition": "micro_batch",
    "forward_and_sample_previous_step": "scheduler_inputs",
}
_ADDING = {"add_column": 0, "rename_column": 1}
_TREES = (*RECIPES, "tests/")


def read_keys(package: Package) -> Iterator[KeyRead]:
    """Yield the keys that training adapters read from the micro-batch, each place once."""
    seen: set[tuple[PythonFile, int, str]] = set()
    for adapter in package.training_adapters:
        for name, parameter in _READING.items():
            method = adapter.method(name)
            if method is None or parameter not in method.parameters:
                continue
            for read in keys_read(method, parameter, adapter):
                place = (read.file, read.node.lineno, read.key)  # type: ignore[attr-defined]
                if place not in seen:
                    seen.add(place)
                    yield read


def columns(package: Package) -> list[set[str]] | None:
    """Return the columns that the data scripts of each tree write; None where that is not known."""
    makers = [file for file in package.preprocessors if _keys(file) and not _hands_on(file, package)]
    if not makers or any(file.problem is not None for file in package.preprocessors):
        return None
    groups = [[file for file in makers if file.path.startswith(tree)] for tree in _TREES]
    return [set.intersection(*(_columns(file) for file in group)) for group in groups if group]


def rollout_keys(package: Package) -> set[str] | None:
    """Return every key of a dictionary that the rollout makes; None where a part of the rollout is not in the tree."""
    files = _rollout_files(package)
    if not package.rollout_adapters or not all(file.path.startswith(PIPELINES) for file in files):
        return None
    return {key for file in files for key in _keys(file)}


def _hands_on(file: PythonFile, package: Package) -> bool:
    """Whether a script makes no rows and names another script that does: its output is the input of that one."""
    others = [other.path for other in package.preprocessors if other is not file]
    return any(path.encode() in file.data for path in others) and not any(rows(file))


def _columns(file: PythonFile) -> set[str]:
    return {key for other in (file, *_imported(file)) for key in _keys(other)}


def _rollout_files(package: Package) -> list[PythonFile]:
    """The files that make the rollout's result: those of the rollout's side, and agent loops."""
    files = {function.file: None for function in side_of(package, "rollout").functions}
    trained = {cls.file for cls in package.training_adapters}
    files.update({file: None for file in package.files if b"gent" in file.data and "agent" in file.name})
    return [file for file in files if file not in trained]


@lru_cache(maxsize=256)
def _keys(file: PythonFile) -> frozenset[str]:
    """Return every key that a file gives to a dictionary, and every column that it adds."""
    index = file.index
    found: set[object] = set()
    for table in index.nodes(ast.Dict):
        found |= {key.value for key in table.keys if isinstance(key, ast.Constant)}
        found |= {file.value(key) for key in table.keys if isinstance(key, ast.Name)}
    for comprehension in index.nodes(ast.DictComp):
        if isinstance(comprehension.key, ast.Constant):
            found.add(comprehension.key.value)
    for target in index.nodes(ast.Subscript):
        if isinstance(target.ctx, ast.Store):
            found.add(file.value(target.slice))
    for call in index.nodes(ast.Call):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in ("dict", "update"):
            found |= {item.arg for item in call.keywords if item.arg}
        at = _ADDING.get(name)
        if at is not None and at < len(call.args):
            found.add(file.value(call.args[at]))
    return frozenset(key for key in found if isinstance(key, str))


def _imported(file: PythonFile) -> list[PythonFile]:
    """Return the files of the tree that a file imports from."""
    targets = [b.target for bindings in file.names.values() for b in bindings if b.kind == "import" and b.target]
    modules = {module for target in targets for module in (target, target.rpartition(".")[0])}
    return [
        other for module in sorted(modules) if (other := file.project.module(module)) is not None and other is not file
    ]
