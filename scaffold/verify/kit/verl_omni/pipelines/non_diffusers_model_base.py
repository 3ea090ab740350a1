"""Base class of training modules that diffusers cannot load."""

from __future__ import annotations

import logging
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

logger = logging.getLogger(__name__)


class NonDiffusersModelBase(nn.Module, metaclass=ABCMeta):
    """LoRA, gradient checkpointing, sharding hints and saving for a plain module.

    A subclass sets ``self.config`` to an object with ``save_pretrained(directory)``.

    Attributes:
        _no_split_modules: names of the layer classes that FSDP wraps.
        _supports_gradient_checkpointing: whether ``forward`` calls its layers through ``_checkpointed_call``.
    """

    _no_split_modules: ClassVar[list[str]] = []
    _supports_gradient_checkpointing: ClassVar[bool] = False
    gradient_checkpointing: bool = False
    _gradient_checkpointing_func: Callable[..., Any] | None = None

    config: Any
    peft_config: dict[str, Any]

    @classmethod
    @abstractmethod
    def from_pretrained(
        cls, model_path: str, torch_dtype: torch.dtype = torch.bfloat16, **kwargs: Any
    ) -> NonDiffusersModelBase:
        """Load the module from folder ``model_path``, its weights in ``torch_dtype``."""

    @abstractmethod
    def forward(self, **kwargs: Any) -> tuple[torch.Tensor]:
        """Return the prediction as a 1-tuple."""

    def enable_gradient_checkpointing(self, gradient_checkpointing_func: Callable[..., Any] | None = None) -> None:
        """Recompute layers in the backward pass, through ``gradient_checkpointing_func`` if given.

        Raises:
            ValueError: the class does not support it.
        """
        if not self._supports_gradient_checkpointing:
            raise ValueError(
                f"{type(self).__name__} does not support gradient checkpointing: "
                "_supports_gradient_checkpointing is False"
            )
        if gradient_checkpointing_func is not None:
            self._gradient_checkpointing_func = gradient_checkpointing_func
        self.gradient_checkpointing = True

    def _checkpointed_call(self, fn: Callable[..., Any], *args: Any, **ckpt_kwargs: Any) -> Any:
        """Call ``fn(*args)``, non-reentrantly checkpointed where that is enabled and gradients are on.

        ``ckpt_kwargs`` are the checkpoint function's; ``fn`` never sees them.
        """
        if self.gradient_checkpointing and torch.is_grad_enabled():
            ckpt_kwargs.setdefault("use_reentrant", False)
            return (self._gradient_checkpointing_func or checkpoint)(fn, *args, **ckpt_kwargs)
        return fn(*args)

    def add_adapter(self, adapter_config: Any, adapter_name: str = "default") -> None:
        """Put PEFT adapter ``adapter_name`` into the modules that ``adapter_config`` targets."""
        from peft import inject_adapter_in_model

        if not hasattr(self, "peft_config"):
            self.peft_config = {}
        self.peft_config[adapter_name] = adapter_config
        inject_adapter_in_model(adapter_config, self, adapter_name)

    def load_lora_adapter(self, adapter_path: str, adapter_name: str = "default") -> None:
        """Add the adapter saved in folder ``adapter_path``; keys that do not match are logged and left alone.

        Raises:
            FileNotFoundError: the folder lacks ``adapter_config.json`` or ``adapter_model.safetensors``.
        """
        from peft import LoraConfig, get_peft_model_state_dict
        from safetensors.torch import load_file

        folder = Path(adapter_path)
        config_file, weights_file = folder / "adapter_config.json", folder / "adapter_model.safetensors"
        for file in (config_file, weights_file):
            if not file.is_file():
                raise FileNotFoundError(f"{file} is not there")
        self.add_adapter(LoraConfig.from_pretrained(str(folder)), adapter_name)

        saved = load_file(weights_file)
        current = get_peft_model_state_dict(self, adapter_name=adapter_name)
        for name in saved.keys() & current.keys():
            current[name].copy_(saved[name])
        for problem, names in (
            ("not in the file", current.keys() - saved),
            ("not in the model", saved.keys() - current),
        ):
            if names:
                logger.warning("adapter %r: %d keys %s: %s", adapter_name, len(names), problem, sorted(names))

    def _adapter_layers(self) -> Iterator[Any]:
        from peft.tuners.tuners_utils import BaseTunerLayer

        return (module for module in self.modules() if isinstance(module, BaseTunerLayer))

    def set_adapter(self, adapter_name: str) -> None:
        """Make ``adapter_name`` the active adapter everywhere."""
        for layer in self._adapter_layers():
            layer.set_adapter(adapter_name)

    def disable_adapters(self) -> None:
        """Run on the base weights alone."""
        for layer in self._adapter_layers():
            layer.enable_adapters(False)

    def enable_adapters(self) -> None:
        """Undo :meth:`disable_adapters`."""
        for layer in self._adapter_layers():
            layer.enable_adapters(True)

    def _save_config(self, save_directory: str) -> None:
        if hasattr(self.config, "save_pretrained"):
            self.config.save_pretrained(save_directory)
        else:
            logger.warning("%s has no save_pretrained, so config.json is not written", type(self.config).__name__)

    def save_pretrained(self, save_directory: str, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write ``config.json`` and ``model.safetensors`` (``pytorch_model.bin`` if not ``safe_serialization``)."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        self._save_config(save_directory)
        state = self.state_dict()
        if not safe_serialization:
            torch.save(state, folder / "pytorch_model.bin")
            return
        from safetensors.torch import save_file

        tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
        save_file(tensors, folder / "model.safetensors")
