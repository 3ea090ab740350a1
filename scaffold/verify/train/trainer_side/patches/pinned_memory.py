"""vllm pins the memory of LoRA weights, which needs an accelerator's driver."""

from __future__ import annotations

from typing import Any

PLACES = {"vllm/lora/lora_model.py:LoRAModel.from_lora_tensors": ("213a2668d4a1",)}


def patch(module: Any) -> None:
    """Pin nothing."""
    module.PIN_MEMORY = False


HOOKS = {"vllm.lora.lora_model": patch}
