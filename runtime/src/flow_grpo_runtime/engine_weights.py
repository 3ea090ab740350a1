"""From the actor into the rollout engine: weights, and LoRA folded into them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .checkpoint import DenoiserSource, read_checkpoint
from .fused import Fused, part_of, plain_modules, plain_name
from .lora_updates import SENT, LoraFold, kinds


def fill_denoiser(denoiser: nn.Module, weights: Iterable[tuple[str, Tensor]], fused: Fused) -> set[str]:
    """Put the actor's weights into the rollout engine's denoiser, in the memory that its parameters have.

    They have the names of the training module, except where the engine fuses layers: those are filled part by part.

    Args:
        denoiser: the engine's module.
        weights: ``transformer.<training name>`` and tensors.
        fused: layers that the engine fuses.

    Returns:
        Names of the denoiser's parameters that were filled.

    Raises:
        KeyError: the denoiser has no parameter of a name.
        ValueError: a tensor has another shape than its parameter.
    """
    targets = {plain_name(name): tensor for name, tensor in (*denoiser.named_buffers(), *denoiser.named_parameters())}
    modules = plain_modules(denoiser)
    filled: set[str] = set()
    for sent, tensor in weights:
        name = sent_name(sent)
        shard: tuple[Any, ...] = ()
        if name not in targets:
            name, shard = part_of(name, targets, modules, fused)
        target = targets[name]
        load = getattr(target, "weight_loader", None)
        with torch.no_grad():
            if load is not None:
                load(target, tensor, *shard)
            elif target.shape != tensor.shape:
                raise ValueError(f"{sent} has shape {tuple(tensor.shape)}, the engine's {name} {tuple(target.shape)}")
            else:
                target.copy_(tensor)
        filled.add(name)
    return filled


def mapped_checkpoint(source: DenoiserSource, model_path: str) -> dict[str, Tensor]:
    """The checkpoint's tensors under the names of the training module, mapped from its files.

    Args:
        source: where the pipeline gets its denoiser from.
        model_path: the checkpoint.
    """
    folder = local_checkpoint(model_path)
    module, sources, config = source.built(folder, torch.float32)
    checkpoint = read_checkpoint(module, folder, sources, source, config)
    checkpoint.tie(module)
    return {name: checkpoint.state[name] for name, _ in module.named_parameters()}


def fold_by_name(
    denoiser: nn.Module, fold: LoraFold, tensors: dict[str, Tensor], peft_config: dict[str, Any], fused: Fused
) -> None:
    """Give the engine's weights an update of the actor's.

    Raises:
        ValueError: as :meth:`LoraFold.folded`.
        KeyError: the denoiser has no parameter for a module.
    """
    targets = {plain_name(name): parameter for name, parameter in denoiser.named_parameters()}
    modules = plain_modules(denoiser)

    def placement(name: str) -> tuple[torch.device, torch.dtype]:
        parameter = targets[name if name in targets else part_of(name, targets, modules, fused)[0]]
        return parameter.device, parameter.dtype

    fill_denoiser(denoiser, fold.folded(tensors, peft_config, placement), fused)


def local_checkpoint(model_path: str) -> str:
    """Local place of a checkpoint, which may have been named by its Hub id."""
    if os.path.exists(model_path):
        return model_path
    from huggingface_hub import snapshot_download

    return str(snapshot_download(model_path, local_files_only=True))


def sent_name(name: str) -> str:
    """Name of a parameter in the training module, from the one under which the actor sends it."""
    return plain_name(name.removeprefix(SENT))


def has_engine_linear(pipeline: nn.Module) -> bool:
    """Whether a pipeline has a linear layer of the engine's."""
    return any("LinearBase" in kinds(module) for module in pipeline.modules())
