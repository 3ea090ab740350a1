"""Whether every LoRA target takes effect in the rollout engine, by its own manager or by what the package does."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.quoting import quoted
from scaffold.remap.engine.engine_proof import PREFIX, whole_keys
from scaffold.remap.engine.loading import Engine
from scaffold.remap.engine.lora_binding import Binding, bind
from scaffold.remap.engine.lora_hook import HOOK, LORA_SIDES, effect_of_hook
from scaffold.remap.engine.lora_manager import matches, read_manager
from scaffold.remap.engine.tokens import Landing
from scaffold.remap.key_map import KeyMap
from scaffold.remap.proof import Offender
from scaffold.source.syntax import walk_tree
from scaffold.source.values import UndecidedError
from scaffold.upstream import UpstreamSource

CHECK = "lora"
Sync = Literal["fold", "adapter", "none"]


@dataclass(frozen=True)
class LoraProof:
    """The outcome.

    Attributes:
        holds: True, False, or None where the engine's text does not settle it.
        offenders: one for each kind of target that does not take effect, with its count.
        reason: what was found, or why nothing could be.
        modules: for each module that carries LoRA, whether it takes effect.
    """

    holds: bool | None
    offenders: tuple[Offender, ...]
    reason: str
    modules: Mapping[str, bool] = field(default_factory=dict, repr=False)


def prove_lora(
    source: UpstreamSource,
    pipeline: str,
    targets: Sequence[str],
    parameters: Mapping[str, Sequence[int]],
    *,
    key_map: KeyMap | None = None,
    headers: CheckpointHeaders | None = None,
    package: Mapping[str, ast.Module] | None = None,
    sync: Sync | None = None,
    lora_hook: bool | None = None,
    prefix: str = PREFIX,
) -> LoraProof:
    """Find the module of the engine that each LoRA target resolves to, after the engine's own packing.

    A package whose subclass of the pipeline has ``map_lora_update_to_engine`` is judged by what that method makes
    of an update: weights that it loads, folded, and what it leaves for the engine's manager. Any other is judged by
    the manager alone.

    Args:
        source: the version of vllm-omni to read; nothing of it is imported.
        pipeline: a registry key, a model folder or ``module:Class``.
        targets: LoRA targets, as PEFT takes a list of them.
        parameters: shape of each parameter of the training module.
        key_map: from the checkpoint's keys to those parameters; with ``headers`` it says where the engine keeps the
            weight of a target, without which a target that does not bind may be one that is merely called otherwise.
        headers: the checkpoint.
        package: the modules of the package by name.
        sync: how the package brings adapters to the engine, where its spec says so. Without ``package``, ``fold``
            is what a rendered package does; ``adapter`` and None leave it to the manager; ``none`` refuses LoRA.
        lora_hook: whether the release of verl-omni asks a pipeline for its hook; where it does not, the package must
            call it itself, or it counts for nothing.
        prefix: what the actor puts before a module's name.

    Raises:
        ScaffoldError: there is no such pipeline.
    """
    carried = {
        name.removesuffix(".weight"): tuple(shape)
        for name, shape in parameters.items()
        if name.endswith(".weight") and len(shape) == 2 and matches(name.removesuffix(".weight"), targets)
    }
    missing = [target for target in targets if not any(matches(module, [target]) for module in carried)]
    if missing:
        offenders = tuple(Offender(CHECK, name, f"no module of training is called {quoted(name)}") for name in missing)
        return LoraProof(False, offenders, offenders[0].message, dict.fromkeys(carried, False))
    if sync == "none":
        return LoraProof(None, (), "the package refuses LoRA")
    try:
        names = [*(headers.tensors if headers is not None else ()), *parameters]
        engine = Engine(source, pipeline, names, headers.configs if headers is not None else None, package)
        weights = _weights(engine, carried, key_map, headers)
        handler = engine.rollout_handler() if package is not None else None
        hook = handler is not None and any(getattr(item, "name", None) == HOOK for item in handler.node.body)
        hook = hook and (lora_hook is not False or _calls_hook(package or {}))
        if package is None and sync == "fold":
            effect: dict[str, bool | None] = {module: bool(weights.get(module)) or None for module in carried}
            return _conclude(targets, effect, weights, {}, "folded into the weights that the engine loads")
        manager = read_manager(source)
        if handler is not None and hook:
            pushed = {f"{prefix}{m}.{side}": shape for m in carried for side, shape in _sides(carried[m]).items()}
            done = effect_of_hook(engine, handler, manager, pushed, targets, prefix, weights)
            return _conclude(targets, done.effect, weights, done.why, done.how)
        bound = bind(engine, manager, {prefix + module for module in carried}, targets)
        effect = {module: _state(engine, bound, prefix + module, weights.get(module, ())) for module in carried}
        return _conclude(targets, effect, weights, bound.why, "bound by the engine's own LoRA manager")
    except UndecidedError as error:
        return LoraProof(None, (), f"the text does not settle it: {error}")


def _calls_hook(package: Mapping[str, ast.Module]) -> bool:
    """Whether a module of the package calls the hook, as a worker class does."""
    calls = (node for tree in package.values() for node in walk_tree(tree) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Attribute) and call.func.attr == HOOK for call in calls)


def _sides(shape: tuple[int, ...]) -> dict[str, tuple[int, int]]:
    rank = 8
    return {LORA_SIDES[0]: (rank, shape[1]), LORA_SIDES[1]: (shape[0], rank)}


def _weights(
    engine: Engine,
    carried: Mapping[str, Sequence[int]],
    key_map: KeyMap | None,
    headers: CheckpointHeaders | None,
) -> dict[str, tuple[Landing, ...]]:
    """Where the engine keeps the weight of each module, as far as checkpoint and map tell."""
    if key_map is None or headers is None:
        return {}
    whole = whole_keys(key_map, headers, [f"{module}.weight" for module in carried])
    keys = {name.removesuffix(".weight"): key for name, key in whole.items()}
    loaded = engine.load([(key, headers.tensors[key].shape) for key in keys.values()])
    if loaded.error is not None:
        raise UndecidedError(f"by its text the engine refuses the checkpoint itself: {loaded.error}")
    return {module: loaded.landings.get(keys.get(module, ""), ()) for module in carried}


def _state(engine: Engine, bound: Binding, name: str, places: Sequence[Landing]) -> bool | None:
    """Whether a module is bound; None where it may be and the text does not say."""
    if name in bound.names:
        return True
    if not places or bound.aliased:
        return None
    holder = engine.tree.find(places[0].place.rpartition(".")[0])
    return None if holder is None or holder.kind == "one of several" else False


def _conclude(
    targets: Sequence[str],
    effect: Mapping[str, bool | None],
    weights: Mapping[str, Sequence[Landing]],
    why: Mapping[str, str],
    how: str,
) -> LoraProof:
    lost = [module for module, works in effect.items() if works is False]
    open_ = [module for module, works in effect.items() if works is None]
    offenders = []
    for target in targets:
        mine = [module for module in lost if matches(module, [target])]
        total = sum(matches(module, [target]) for module in effect)
        if mine:
            message = f"{len(mine)} of {total} modules of the LoRA target {quoted(target)} do not take effect"
            offenders.append(Offender(CHECK, target, message + _because(mine[0], weights, why)))
    known = {module: bool(works) for module, works in effect.items()}
    if lost:
        kinds = f"{len(offenders)} of {len(targets)} LoRA targets"
        reason = f"{kinds}, {len(lost)} of {len(effect)} modules, do not take effect; the others are {how}"
        if len(lost) == len(effect):
            reason = f"none of the {len(effect)} modules takes effect"
        return LoraProof(False, tuple(offenders), reason, known)
    if open_:
        because = _because(open_[0], weights, why)
        reason = f"the text does not settle {len(open_)} of {len(effect)} modules, {quoted(open_[0])} first{because}"
        return LoraProof(None, (), reason, known)
    return LoraProof(True, (), f"all {len(effect)} modules are {how}", known)


def _because(module: str, weights: Mapping[str, Sequence[Landing]], why: Mapping[str, str]) -> str:
    places = weights.get(module, ())
    said = why.get(places[0].place.rpartition(".")[0] if places else "", why.get(module, ""))
    if not places:
        return f": {said}" if said else ""
    at = f" ({places[0].at.file}:{places[0].at.line})" if places[0].at is not None else ""
    kept = f": the engine keeps the weight in {quoted(places[0].place)}{at}"
    return f"{kept}, {said}" if said else kept
