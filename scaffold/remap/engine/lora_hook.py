"""What a package's hook makes of a LoRA update: weights that it folds, modules that it renames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scaffold.remap.engine.loading import Engine
from scaffold.remap.engine.lora_binding import bind
from scaffold.remap.engine.lora_manager import LoraManager
from scaffold.remap.engine.tokens import Landing, Weight
from scaffold.source.classes import ClassInfo
from scaffold.source.values import UndecidedError

HOOK = "map_lora_update_to_engine"
LORA_SIDES = ("lora_A.weight", "lora_B.weight")


@dataclass(frozen=True)
class HookEffect:
    """Whether each module takes effect, None where that is open; why not, by module; and how it does, in words."""

    effect: Mapping[str, bool | None]
    why: Mapping[str, str]
    how: str


def effect_of_hook(
    engine: Engine,
    handler: ClassInfo,
    manager: LoraManager,
    pushed: Mapping[str, Sequence[int]],
    targets: Sequence[str],
    prefix: str,
    weights: Mapping[str, Sequence[Landing]],
) -> HookEffect:
    """Execute the hook on the names of an update of plain LoRA.

    A module takes effect where both its matrices go into the parameter that holds its weight, or where what the hook
    returns binds.

    Raises:
        UndecidedError: the text does not settle what the hook does.
    """
    options = {
        "r": 8, "lora_alpha": 16, "target_modules": list(targets), "use_dora": False, "use_rslora": False,
        "rank_pattern": {}, "alpha_pattern": {}, "bias": "none", "peft_type": "LORA", "task_type": None,
    }  # fmt: skip
    call = engine.call_hook(handler, HOOK, pushed, options)
    modules = dict.fromkeys(name.removeprefix(prefix).removesuffix("." + side) for name in pushed for side in LORA_SIDES
                            if name.endswith(side))  # fmt: skip
    if call.loaded.error is not None:
        return HookEffect(dict.fromkeys(modules, False), dict.fromkeys(modules, call.loaded.error), "taken by the hook")
    bound, decided = _bound(engine, manager, call.result)
    effect: dict[str, bool | None] = {}
    why: dict[str, str] = {}
    for module in modules:
        sides = [f"{prefix}{module}.{side}" for side in LORA_SIDES]
        places = [{landing.place for landing in call.loaded.landings.get(side, ())} for side in sides]
        home = {landing.place for landing in weights.get(module, ())}
        if all(side in bound for side in sides):
            effect[module] = True
        elif all(places) and home:
            effect[module] = all(found == home for found in places)
            if not effect[module]:
                why[module] = f"the hook puts it into {sorted(places[0])[0]}"
        elif any(places) or not decided or call.left_open:
            effect[module] = None
            why[module] = next(iter(call.left_open), "where its weight belongs is not known")
        else:
            effect[module] = False
            why[module] = "the hook neither folds it nor hands it on under a name that binds"
    return HookEffect(effect, why, "made to take effect by the package's hook")


def _bound(engine: Engine, manager: LoraManager, result: Any) -> tuple[set[str], bool]:
    """The pushed tensors that the hook's result brings to a layer, and whether the text gives that result."""
    if not isinstance(result, tuple) or len(result) != 2 or not all(isinstance(part, dict) for part in result):
        return set(), False
    tensors, options = result
    targets = options.get("target_modules")
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        return set(), False
    names = {
        name.removesuffix("." + side)
        for name in tensors
        if isinstance(name, str)
        for side in LORA_SIDES
        if name.endswith("." + side)
    }
    try:
        taken = bind(engine, manager, names, targets).names
    except UndecidedError:
        return set(), False
    found: set[str] = set()
    for name, value in tensors.items():
        if isinstance(value, Weight) and any(name == f"{module}.{side}" for module in taken for side in LORA_SIDES):
            found |= {value.name, *value.merged}
    return found, True
