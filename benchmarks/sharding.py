"""A training module wrapped, read, saved and loaded as verl-omni's FSDP engine does it.

Written after ``DiffusersFSDPEngine`` of verl-omni main of 2026-08-22 and the FSDP helpers of verl that it calls, for
machines that have neither. The defaults are the engine's: parameters in bf16, gradients reduced in float32, every rank
a shard of everything.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from peft import get_peft_model_state_dict
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy
from torch.distributed.tensor import DTensor

WRAPPED = "_fsdp_wrapped_module."
LAYER_PREFIX = "layers."  # what the launch script sets as fsdp_layer_prefixes


def wrap(module: nn.Module, strategy: str, mesh: DeviceMesh, device: torch.device) -> nn.Module:
    """Shard ``module``, whole and on ``device``, over ``mesh`` with ``fsdp`` (FSDP1) or ``fsdp2``.

    Returns the wrapped module; with ``fsdp2`` it is ``module`` itself.
    """
    return {"fsdp": _fsdp1, "fsdp2": _fsdp2}[strategy](module, mesh, device)


def _fsdp1(module: nn.Module, mesh: DeviceMesh, device: torch.device) -> nn.Module:
    """One unit per layer, one per LoRA matrix, and the rest."""
    layers = set(module._no_split_modules)

    def apart(child: nn.Module) -> bool:
        weight = getattr(child, "weight", None)
        trained = weight is not None and weight.requires_grad and not list(child.children())
        return type(child).__name__ in layers or trained

    return FSDP(
        module,
        auto_wrap_policy=functools.partial(lambda_auto_wrap_policy, lambda_fn=apart),
        device_id=device,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        mixed_precision=MixedPrecision(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.float32
        ),
        sync_module_states=device.type == "cuda",  # FSDP1 refuses parameters on the CPU; there all ranks build the same
        device_mesh=mesh,
        use_orig_params=False,
    )


def _fsdp2(module: nn.Module, mesh: DeviceMesh, device: torch.device) -> nn.Module:
    """One unit per layer, one per embedding, and the rest; rank 0 hands its weights to all."""
    whole = module.state_dict()
    layers = set(module._no_split_modules)
    units = [child for child in module.modules() if type(child).__name__ in layers or isinstance(child, nn.Embedding)]
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=True)
    for unit in (*units, module):
        fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    if dist.get_rank():
        module.to_empty(device=device)
    set_model_state_dict(module, whole, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    return module


def lora_name(name: str) -> str:
    """Name of a LoRA tensor as the rollout gets it: without wrappers and without the adapter's name."""
    return name.replace(WRAPPED, "").replace(".default", "")


def lora_tensors(module: nn.Module, gradients: bool = False) -> dict[str, Tensor]:
    """Whole LoRA weights, or their gradients, of a wrapped or plain module, copied to the CPU.

    Gathered from the shards themselves, independently of :func:`collect_lora`. All ranks call it together.
    """
    return {
        lora_name(name): _gathered(parameter.grad if gradients else parameter.detach(), shape).cpu()
        for name, parameter, shape in _lora_parameters(module)
    }


def _lora_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter, torch.Size]]:
    if not isinstance(module, FSDP):
        yield from ((name, p, p.shape) for name, p in module.named_parameters() if ".lora_" in name)
        return
    for name, unit in module.named_modules():
        if isinstance(unit, FSDP) and ".lora_" in name:
            [flat] = unit.parameters()
            yield f"{name}.weight", flat, torch.Size((unit.module.out_features, unit.module.in_features))


def _gathered(tensor: Tensor, shape: torch.Size) -> Tensor:
    if isinstance(tensor, DTensor):
        return tensor.full_tensor()
    if tensor.shape == shape:
        return tensor.clone()
    shards = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(shards, tensor)
    return torch.cat(shards)[: shape.numel()].view(shape)  # the last shard is padded


def collect_lora(module: nn.Module) -> dict[str, Tensor]:
    """LoRA weights for the rollout, one layer at a time, as the engine collects them with ``layered_summon=True``."""
    bare = getattr(module, "_fsdp_wrapped_module", module)
    found = {}
    for name, unit in module.named_modules():
        layer = name.removeprefix(WRAPPED)
        number = layer.removeprefix(LAYER_PREFIX)
        if number == layer or "." in number or not isinstance(unit, (FSDP, FSDPModule)):
            continue
        with FSDP.summon_full_params(unit, writeback=False):
            part = get_peft_model_state_dict(bare, state_dict=unit.state_dict(), adapter_name="default")
            for key, tensor in part.items():
                whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
                found[f"{layer}.{key}".replace(WRAPPED, "")] = whole.detach().cpu()
        unit._is_root = False  # before the first forward, summoning a layer makes it a root of its own
    return found


def release(module: nn.Module) -> None:
    """Free the weights at once; FSDP1 keeps hold of its shards when nobody uses the module any more."""
    for parameter in module.parameters():
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        local.untyped_storage().resize_(0)


def _sharded(module: nn.Module) -> AbstractContextManager[object]:
    if not isinstance(module, FSDP):
        return nullcontext()
    cuda = torch.cuda.is_available()
    configs = ShardedStateDictConfig(offload_to_cpu=cuda), ShardedOptimStateDictConfig(offload_to_cpu=cuda)
    return FSDP.state_dict_type(module, StateDictType.SHARDED_STATE_DICT, *configs)


def _files(folder: Path) -> tuple[Path, Path]:
    rank = f"world_size_{dist.get_world_size()}_rank_{dist.get_rank()}.pt"
    return folder / f"model_{rank}", folder / f"optim_{rank}"


def save(module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> int:
    """Write this rank's shard of model and optimizer; returns its bytes."""
    with _sharded(module):
        for file, part in zip(_files(folder), (module, optimizer), strict=True):
            torch.save(part.state_dict(), file)
    return sum(file.stat().st_size for file in _files(folder))


def load(module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Load into a wrapped module and its optimizer what :func:`save` of the same rank wrote."""
    with _sharded(module):
        for file, part in zip(_files(folder), (module, optimizer), strict=True):
            part.load_state_dict(torch.load(file, weights_only=False))


def differing(module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> int:
    """Tensors of this rank's shard that are not bitwise those that :func:`save` wrote, missing ones included."""
    count = 0
    with _sharded(module):
        for file, part in zip(_files(folder), (module, optimizer), strict=True):
            saved = _flattened(torch.load(file, weights_only=False, map_location="cpu"))
            now = _flattened(part.state_dict())
            count += len(saved.keys() ^ now.keys())
            count += sum(not torch.equal(now[name].cpu(), saved[name]) for name in saved.keys() & now.keys())
    return count


def _flattened(state: dict, prefix: str = "") -> dict[str, Tensor]:
    """Local tensors of a nested state by their path."""
    found = {}
    for name, value in state.items():
        if isinstance(value, dict):
            found |= _flattened(value, f"{prefix}{name}/")
        elif isinstance(value, Tensor):
            found[f"{prefix}{name}"] = value.to_local() if isinstance(value, DTensor) else value
    return found
