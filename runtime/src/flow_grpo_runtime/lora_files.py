"""LoRA adapters of a training module, from and to files in PEFT's format."""

from __future__ import annotations

import logging
import os
from typing import Any

import torch
from peft import LoraConfig, get_peft_model_state_dict
from safetensors.torch import load_file, save_file

logger = logging.getLogger(__name__)


class LoraFiles:
    """Goes before ``NonDiffusersModelBase``: adapters that fit the module or are refused."""

    def load_lora_adapter(self: Any, adapter_path: str, adapter_name: str = "default") -> None:
        """Start from a LoRA adapter in PEFT's format.

        LoRA goes where the file has matrices: the ``target_modules`` beside them may name more, for VeRL-Omni's export
        of a sharded checkpoint keeps the last part of each name alone.

        Args:
            adapter_path: folder with ``adapter_config.json`` and ``adapter_model.safetensors``.
            adapter_name: of the adapter.

        Raises:
            FileNotFoundError: one of the two is missing.
            ValueError: a matrix has no place in this model, a place has no matrix, or their shapes differ.
        """
        weights = os.path.join(adapter_path, "adapter_model.safetensors")
        for path in (os.path.join(adapter_path, "adapter_config.json"), weights):
            if not os.path.isfile(path):
                raise FileNotFoundError(f"a LoRA adapter needs {path}")
        matrices = {name.removeprefix("base_model.model."): tensor for name, tensor in load_file(weights).items()}
        config = LoraConfig.from_pretrained(adapter_path)
        config.inference_mode = False  # PEFT saves True, which would freeze the adapter
        config.target_modules = endings_of(self, {name.partition(".lora_")[0] for name in matrices})
        self.add_adapter(config, adapter_name)
        own = get_peft_model_state_dict(self, adapter_name=adapter_name, save_embedding_layers=False)
        wrong = sorted(own.keys() ^ matrices.keys()) or [
            name for name in own if own[name].shape != matrices[name].shape
        ]
        if wrong:
            raise ValueError(
                f"{weights} does not fit this model: {len(wrong)} matrices are missing, unknown or of another shape,"
                f" such as {wrong[0]}"
            )
        with torch.no_grad():
            for name, matrix in own.items():
                matrix.copy_(matrices[name])

    def save_lora_adapter(self: Any, save_directory: str, adapter_name: str = "default") -> None:
        """Write a LoRA adapter in PEFT's format. The module must not be sharded."""
        self.peft_config[adapter_name].save_pretrained(save_directory)
        own = get_peft_model_state_dict(self, adapter_name=adapter_name, save_embedding_layers=False)
        tensors = {f"base_model.model.{name}": matrix.detach().cpu().contiguous() for name, matrix in own.items()}
        save_file(tensors, os.path.join(save_directory, "adapter_model.safetensors"), metadata={"format": "pt"})

    def _warn_of_adapters(self: Any) -> None:
        """Warn that the saved weights do not include the adapter."""
        if getattr(self, "peft_config", None):
            logger.warning(
                "save_pretrained writes the weights without the adapter: save_lora_adapter writes that, and"
                " `omni-scaffold export` merges the one of a trainer's checkpoint"
            )


def endings_of(module: torch.nn.Module, names: set[str]) -> list[str]:
    """The shortest endings of these modules' names that no other module's name has: what PEFT takes as targets."""
    others = [f".{name}" for name, _ in module.named_modules() if name not in names]
    shortest = set()
    for name in names:
        parts = name.split(".")
        endings = (".".join(parts[at:]) for at in range(len(parts) - 1, 0, -1))
        shortest.add(next((end for end in endings if not any(o.endswith(f".{end}") for o in others)), name))
    return sorted(shortest)
