"""Base classes and registries of the two adapters: training and rollout."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from omni_scaffold_kit.profile import ACTIVE

from verl_omni.workers.config import DiffusionModelConfig

if TYPE_CHECKING:
    from tensordict import TensorDict

_AnyClass = TypeVar("_AnyClass", bound=type)


class DiffusionModelBase(ABC):
    """What the trainer calls to build, configure and run one architecture under one algorithm.

    Adapters hold no state: every method is a classmethod and the class is never instantiated.
    """

    _registry: ClassVar[dict[tuple[str, str], type[DiffusionModelBase]]] = {}

    @classmethod
    def register(cls, architecture: str, algorithm: str) -> Callable[[_AnyClass], _AnyClass]:
        """Return a class decorator that files the class under ``(architecture, algorithm)``."""

        def decorator(subclass: _AnyClass) -> _AnyClass:
            cls._registry[architecture, algorithm] = subclass
            return subclass

        return decorator

    @classmethod
    def get_class(cls, model_config: DiffusionModelConfig) -> type[DiffusionModelBase]:
        """Return the adapter for the configuration's architecture and algorithm.

        Raises:
            NotImplementedError: none is registered.
        """
        return _resolve(cls._registry, model_config.architecture, model_config.algorithm, model_config.external_lib)

    @classmethod
    def peek_class(cls, architecture: str, algorithm: str) -> type[DiffusionModelBase] | None:
        """Return the adapter for ``(architecture, algorithm)``, or None."""
        return cls._registry.get((architecture, algorithm))

    @classmethod
    def get_class_by_name(
        cls, architecture: str, algorithm: str, external_lib: str | None = None
    ) -> type[DiffusionModelBase]:
        """Return the adapter for ``(architecture, algorithm)``, after importing module ``external_lib`` if given.

        Raises:
            NotImplementedError: none is registered.
        """
        return _resolve(cls._registry, architecture, algorithm, external_lib)

    @classmethod
    def build_module(cls, model_config: DiffusionModelConfig, torch_dtype: torch.dtype) -> torch.nn.Module | None:
        """Load the training module; None lets the engine load it through diffusers."""
        return None

    @classmethod  # noqa: B027  # an optional hook
    def configure_train_mode(cls, module: torch.nn.Module) -> None:
        """Adjust flags after ``module.train()``."""

    @classmethod
    def preserve_fp32_modules(cls) -> bool:
        """Return whether modules that ask for float32 keep it while the training module is loaded."""
        return True

    @classmethod
    def get_fsdp_ignored_module_names(cls, model_config: DiffusionModelConfig) -> list[str]:
        """Return the names of frozen modules that sharding leaves alone."""
        return []

    @classmethod  # noqa: B027  # an optional hook
    def validate_lora_config(cls, model_config: DiffusionModelConfig) -> None:
        """Refuse LoRA settings that the rollout could not follow, by raising."""

    @classmethod
    def prepare_processor_files(cls, model_path: str) -> str | None:
        """Return another folder to load the processor from, or None."""
        return None

    @classmethod  # noqa: B027  # an optional hook
    def configure_trainable_params(cls, module: torch.nn.Module, model_config: DiffusionModelConfig) -> None:
        """Choose what trains without LoRA by setting ``requires_grad``."""

    @classmethod
    @abstractmethod
    def build_scheduler(cls, model_config: DiffusionModelConfig) -> Any:
        """Return a scheduler whose timesteps and sigmas are set."""

    @classmethod
    @abstractmethod
    def set_timesteps(cls, scheduler: Any, model_config: DiffusionModelConfig, device: str) -> None:
        """Set the schedule and move it to ``device``."""

    @classmethod
    @abstractmethod
    def prepare_model_inputs(
        cls,
        module: torch.nn.Module,
        model_config: DiffusionModelConfig,
        latents: torch.Tensor,
        timesteps: torch.Tensor,
        prompt_embeds: torch.Tensor,
        prompt_embeds_mask: torch.Tensor,
        negative_prompt_embeds: torch.Tensor,
        negative_prompt_embeds_mask: torch.Tensor,
        micro_batch: TensorDict,
        step: int,
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the keyword arguments of the module's forward, conditional and unconditional.

        Args:
            module: the training module.
            model_config: its configuration.
            latents: ``(B, T + 1, ...)``, the trajectory.
            timesteps: ``(B, T)``.
            prompt_embeds: ``(B, L, D)``, unused by models that embed tokens themselves, as are the next three.
            prompt_embeds_mask: ``(B, L)``.
            negative_prompt_embeds: ``(B, L, D)``.
            negative_prompt_embeds_mask: ``(B, L)``.
            micro_batch: everything else of the batch.
            step: position in the trajectory.
        """

    @classmethod
    @abstractmethod
    def forward_and_sample_previous_step(
        cls,
        module: torch.nn.Module,
        scheduler: Any,
        model_config: DiffusionModelConfig,
        model_inputs: dict[str, Any],
        negative_model_inputs: dict[str, Any] | None,
        scheduler_inputs: TensorDict | dict[str, torch.Tensor] | None,
        step: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Predict the velocity and score the recorded step.

        Returns:
            ``(log_prob, prev_sample_mean, std_dev_t, sqrt_dt)``; ``log_prob`` and ``sqrt_dt`` are ``(B,)``.
        """

    @classmethod
    def forward(
        cls,
        module: torch.nn.Module,
        model_config: DiffusionModelConfig,
        model_inputs: dict[str, Any],
        negative_model_inputs: dict[str, Any] | None = None,
    ) -> torch.Tensor:
        """Return one prediction: the first element of what the module returns."""
        prediction: torch.Tensor = module(**model_inputs)[0]
        return prediction


def _resolve(
    registry: dict[tuple[str, str], type[DiffusionModelBase]],
    architecture: str | None,
    algorithm: str,
    external_lib: str | None,
) -> type[DiffusionModelBase]:
    if external_lib is not None:
        importlib.import_module(external_lib)
    for key, adapter in registry.items():
        if key == (architecture, algorithm):
            return adapter
    raise NotImplementedError(
        f"no training adapter is registered for {(architecture, algorithm)}; registered are {sorted(registry)}"
    )


for _hook in ACTIVE.absent_model_hooks:
    delattr(DiffusionModelBase, _hook)


class VllmOmniPipelineBase:
    """Registry of rollout adapters, which inherit from vllm-omni's pipelines and not from this class."""

    _registry: ClassVar[dict[tuple[str, str], type]] = {}

    @classmethod
    def register(cls, architecture: str, algorithm: str) -> Callable[[_AnyClass], _AnyClass]:
        """Return a class decorator that files the class under ``(architecture, algorithm)``.

        A class whose own body does not define ``supports_request_batch`` gets False, whatever its bases say.
        """

        def decorator(subclass: _AnyClass) -> _AnyClass:
            if ACTIVE.marks_request_batch and "supports_request_batch" not in vars(subclass):
                subclass.supports_request_batch = False  # type: ignore[attr-defined]
            cls._registry[architecture, algorithm] = subclass
            return subclass

        return decorator

    @classmethod
    def get_class(cls, architecture: str, algorithm: str) -> type | None:
        """Return the rollout adapter for ``(architecture, algorithm)``, or None."""
        return cls._registry.get((architecture, algorithm))

    @classmethod
    def get_pipeline_path(cls, architecture: str, algorithm: str) -> str | None:
        """Return the dotted path under which the engine imports that adapter, or None."""
        adapter = cls.get_class(architecture, algorithm)
        return None if adapter is None else f"{adapter.__module__}.{adapter.__qualname__}"
