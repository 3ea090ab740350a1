"""Layers that the rollout engine fuses and training keeps separate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

# Class, its layer, and the layers of the training module in the order of its rows.
Fused = tuple[tuple[str, str, tuple[str, ...]], ...]

QKV = ("q", "k", "v")
# A layer of one of many experts, and what the engine calls its part of a parameter of all of them.
_EXPERT = re.compile(r"(.+)\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight")
EXPERT_PARTS = {"gate_proj": ("w13_weight", "w1"), "up_proj": ("w13_weight", "w3"), "down_proj": ("w2_weight", "w2")}


def plain_name(name: str) -> str:
    """A parameter's name without what compilation and adapters put into it."""
    return name.replace("_orig_mod.", "").replace(".base_layer.", ".")


def plain_modules(module: nn.Module) -> dict[str, nn.Module]:
    """Modules by their plain names."""
    return {plain_name(f"{name}.").rstrip("."): inner for name, inner in module.named_modules()}


def part_of(
    name: str, targets: Mapping[str, Any], modules: Mapping[str, nn.Module], fused: Fused
) -> tuple[str, tuple[Any, ...]]:
    """Find the engine's parameter of a fused layer.

    Args:
        name: of a parameter of the training module.
        targets: the engine's parameters by name.
        modules: the engine's modules by name.
        fused: which layers it fuses.

    Returns:
        Name of the engine's parameter, and the arguments of its loader that say which part is meant.

    Raises:
        KeyError: it has none.
    """
    expert = _EXPERT.fullmatch(name)
    if expert is not None:
        fused_name, part = EXPERT_PARTS[expert[3]]
        for target in (f"{expert[1]}.{fused_name}", f"{expert[1]}.routed_experts.{fused_name}"):
            if target in targets:
                return target, (target, part, int(expert[2]))
    path, _, kind = name.rpartition(".")
    for _, layer, parts in fused:
        index = next((i for i, part in enumerate(parts) if f".{path}".endswith(f".{part}")), None)
        if index is None:
            continue
        fused_name = path.removesuffix(parts[index]) + layer
        if f"{fused_name}.{kind}" in targets:
            by_letter = any(base.__name__ == "QKVParallelLinear" for base in type(modules[fused_name]).__mro__)
            return f"{fused_name}.{kind}", (QKV[index] if by_letter else index,)
    raise KeyError(f"the rollout engine's denoiser has no parameter for {name!r}")
