"""A LoRA adapter on the training module, and the modules it binds to in the engine's LoRA manager."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scaffold.verify.rollout.engine_side.training import Training


@dataclass(frozen=True)
class Adapter:
    """The actor's update: tensors named ``transformer.<module>.lora_{A,B}.weight``, and PEFT's configuration."""

    tensors: list[tuple[str, torch.Tensor]]
    config: dict[str, Any]

    @property
    def modules(self) -> list[str]:
        """Names of the adapted modules."""
        return sorted({name.rsplit(".lora_", 1)[0] for name, _ in self.tensors})


def inject(training: Training, targets: list[str], rank: int, alpha: int) -> None:
    """Add LoRA through the module's own ``add_adapter``, with B at zero."""
    from peft import LoraConfig

    config = LoraConfig(r=rank, lora_alpha=alpha, init_lora_weights="gaussian", target_modules=targets, bias="none")
    training.module.requires_grad_(False)
    training.module.add_adapter(config)
    training.module.to(training.dtype)


@torch.no_grad()
def change(training: Training, seed: int, scale: float = 0.1) -> None:
    """Give every A and B new random values, as a training step would, so that B·A is about ``scale`` of the weight."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in training.module.named_parameters():
        if "lora_" in name:
            noise = torch.randn(parameter.shape, generator=generator) / parameter.shape[1] ** 0.5
            parameter.copy_((noise * (scale if "lora_B" in name else 1.0)).to(parameter.dtype))


def collect(training: Training) -> Adapter:
    """Take the adapter out of the module under the names by which the actor sends it."""
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(training.module, adapter_name="default")
    tensors = [(f"transformer.{name}", tensor.detach().clone()) for name, tensor in state.items()]
    return Adapter(tensors, training.module.peft_config["default"].to_dict())


def write(training: Training, folder: str) -> None:
    """Write the adapter into a folder, in PEFT's format."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    training.module.peft_config["default"].save_pretrained(folder)
    state = get_peft_model_state_dict(training.module, adapter_name="default")
    tensors = {f"base_model.model.{name}": tensor.detach().contiguous() for name, tensor in state.items()}
    save_file(tensors, Path(folder, "adapter_model.safetensors"))


@torch.no_grad()
def merged(training: Training) -> list[tuple[str, torch.Tensor]]:
    """All weights with the adapter in them, under the names by which a trainer with ``lora.merge`` sends them."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [module for module in training.module.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:
        layer.merge()
    weights = [
        (name.replace(".base_layer.", "."), tensor) for name, tensor in training.base_weights() if ".lora_" not in name
    ]
    for layer in layers:
        layer.unmerge()
    return weights


def bound(worker: Any, adapter: Adapter) -> list[str]:
    """Return the sent modules that reach a wrapped engine module with a B that is not zero, by the manager's names."""
    manager = worker.lora_manager
    reached = set()
    for full, layer in manager._lora_modules.items():
        if not any(bool(b.abs().sum() > 0) for b in getattr(layer, "lora_b_stacked", ())):
            continue
        prefix, _, leaf = full.rpartition(".")
        names = {full, leaf, *(f"{prefix}.{part}" for part in manager._packed_modules_mapping.get(leaf, ()))}
        names |= {name.split(".", 1)[-1] for name in names}
        reached |= {module for module in adapter.modules if module in names}
    return sorted(reached)
