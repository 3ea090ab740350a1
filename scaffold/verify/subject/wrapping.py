"""Ways to shard a module: FSDP2 in float32, and both strategies in bf16 as verl-omni's engine sets them up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

# Names that verl gives a unit of their own beside the embeddings.
_BY_NAME = ("embed_tokens", "lm_head")


@dataclass(frozen=True)
class Strategy:
    """One way.

    Attributes:
        wrap: shards a module, ``(module, layers, mesh) -> root``.
        gradients: gradients of a sharded root by parameter name, whole, on every rank; None where there is none.
        dtype: that parameters are computed in.
        lora_only: whether it takes only modules whose trainable parameters are LoRA matrices.
        casts: whether inputs of each unit are cast to ``dtype``.
        same_operations: whether the whole module computes in the same order. FSDP1 holds LoRA in float32 outside of
            its units, so code that asks a matrix for its dtype may take another way, as PEFT's and rendered layers do.
    """

    wrap: Callable[[Any, list[Any], Any], Any]
    gradients: Callable[[Any], dict[str, Tensor | None]]
    dtype: torch.dtype
    lora_only: bool = False
    casts: bool = False
    same_operations: bool = True


def _fully_shard(module: Any, layers: list[Any], mesh: Any, *, dtype: torch.dtype) -> Any:
    """FSDP2. In bf16 as the engine: a unit for each layer and embedding, inputs of each cast, sums in float32."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    options: dict[str, Any] = {"mesh": mesh}
    if dtype != torch.float32:
        options["mp_policy"] = MixedPrecisionPolicy(dtype, torch.float32, cast_forward_inputs=True)
        chosen = {id(layer) for layer in layers}
        layers = [
            child
            for name, child in module.named_modules()
            if id(child) in chosen
            or isinstance(child, nn.Embedding)
            or (name.rpartition(".")[2] in _BY_NAME and hasattr(child, "weight"))
        ]
    for layer in layers:
        fully_shard(layer, **options)
    fully_shard(module, **options)
    return module


def _dtensor_gradients(root: Any) -> dict[str, Tensor | None]:
    from torch.distributed.tensor import DTensor

    return {
        name: p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for name, p in root.named_parameters()
    }


def _flat(module: Any, layers: list[Any], mesh: Any) -> Any:
    """FSDP1 as the engine's default: a unit for each layer and each LoRA matrix, flat parameters."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import _or_policy, lambda_auto_wrap_policy, transformer_auto_wrap_policy

    def trainable_leaf(child: nn.Module) -> bool:
        weight = getattr(child, "weight", None)
        return not list(child.children()) and weight is not None and weight.requires_grad

    policies = [
        partial(lambda_auto_wrap_policy, lambda_fn=trainable_leaf),
        partial(transformer_auto_wrap_policy, transformer_layer_cls={type(layer) for layer in layers}),
    ]
    return FullyShardedDataParallel(
        module,
        auto_wrap_policy=partial(_or_policy, policies=policies),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        mixed_precision=MixedPrecision(torch.bfloat16, torch.float32, torch.float32),
        device_mesh=mesh,
        device_id=torch.device("cpu"),
        use_orig_params=False,
    )


def _flat_gradients(root: Any) -> dict[str, Tensor | None]:
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel

    found: dict[str, Tensor | None] = {}
    for name, unit in root.named_modules():
        handle = getattr(unit, "_handle", None)
        if not isinstance(unit, FullyShardedDataParallel) or handle is None or not handle.flat_param.requires_grad:
            continue
        flat = handle.flat_param
        (info,), (shape,) = flat._param_infos, flat._shapes
        path = [part for part in f"{name}.{info.param_name}".split(".") if part != "_fsdp_wrapped_module"]
        full = None
        if flat.grad is not None:
            if flat.grad.shape != flat.shape:
                raise RuntimeError(
                    f"{'.'.join(path)}: FSDP1 never reduces its gradient, for in mixed precision it does so after"
                    " the first call of a module in the forward pass, and that call has no gradient"
                )
            shards = [torch.empty_like(flat.grad) for _ in range(dist.get_world_size())]
            dist.all_gather(shards, flat.grad.contiguous())
            full = torch.cat(shards)[: shape.numel()].view(shape)
        found[".".join(path)] = full
    return found


STRATEGIES = {
    "fsdp2": Strategy(partial(_fully_shard, dtype=torch.float32), _dtensor_gradients, torch.float32),
    "fsdp2-bf16": Strategy(partial(_fully_shard, dtype=torch.bfloat16), _dtensor_gradients, torch.bfloat16, casts=True),
    "fsdp1-bf16": Strategy(_flat, _flat_gradients, torch.bfloat16, lora_only=True, same_operations=False),
}
