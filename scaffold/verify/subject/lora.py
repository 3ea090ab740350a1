"""LoRA as the engine adds it."""

from __future__ import annotations

from typing import Any

RANK, ALPHA = 2, 4


def adapted(subject: Any, *, zero: bool = True, dtype: Any = None) -> Any:
    """A module with LoRA on the declared targets.

    Args:
        subject: the package.
        zero: B starts at zero, as in training; else at random, so that the adapter does something.
        dtype: of the base weights, given as the engine gives it; LoRA is float32.
    """
    import torch
    from peft import LoraConfig

    module = subject.new_module()
    if dtype is not None:
        module.to(dtype)
    torch.manual_seed(1)
    targets = subject.declared("target_modules")
    module.add_adapter(LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets, init_lora_weights=zero))
    return module


def layers(module: Any) -> dict[str, Any]:
    """The layers that carry LoRA, by name."""
    return {name: child for name, child in module.named_modules() if hasattr(child, "lora_A")}
