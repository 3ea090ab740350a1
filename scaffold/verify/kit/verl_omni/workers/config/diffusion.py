"""Model, pipeline and algorithm settings, with verl-omni's names and defaults and none of its loading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, ClassVar


class _Config(Mapping[str, Any]):
    """Fields read as attributes, items or through ``get``; each is set once, undeclared ones too."""

    _mutable_fields: ClassVar[frozenset[str]] = frozenset()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ and name not in self._mutable_fields:
            raise FrozenInstanceError(f"{type(self).__name__}.{name} is set already; make a new configuration")
        super().__setattr__(name, value)

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return (entry.name for entry in fields(self))  # type: ignore[arg-type]  # subclasses are dataclasses

    def __len__(self) -> int:
        return len(fields(self))  # type: ignore[arg-type]

    def get(self, key: str, default: Any = None) -> Any:
        """Return attribute ``key``, or ``default`` where there is none."""
        return getattr(self, key, default)


@dataclass
class DiffusionPipelineConfig(_Config):
    """Sampling settings of the pipeline; ``height`` and ``width`` in pixels.

    Settings of one model, such as its guidance scales, are undeclared attributes that may be absent.
    """

    height: int = 512
    width: int = 512
    num_inference_steps: int = 10
    true_cfg_scale: float = 1.0
    max_sequence_length: int = 512
    guidance_scale: float | None = None
    num_frames: int = 1


@dataclass
class DiffusionRolloutAlgoConfig(_Config):
    """Noise of the stochastic sampler and the window of steps that get it."""

    noise_level: float = 1.0
    sde_type: str = "sde"
    sde_window_size: int | None = None
    sde_window_range: list[int] | None = None


@dataclass
class DiffusionModelConfig(_Config):
    """What a training adapter reads. Unlike verl-omni's, it takes ``local_path`` as it is and loads nothing."""

    _mutable_fields: ClassVar[frozenset[str]] = frozenset(
        {
            "algorithm",
            "architecture",
            "local_path",
            "local_tokenizer_path",
            "model_type",
            "processor",
            "tokenizer",
            "tokenizer_path",
            "transformer_config",
        }
    )

    path: str = ""
    architecture: str | None = None
    transformer_config: dict[str, Any] | None = None
    algorithm: str = ""
    local_path: str | None = None
    tokenizer_path: str | None = None
    local_tokenizer_path: str | None = None
    model_type: str = "diffusion_model"
    tokenizer: Any = None
    processor: Any = None
    trust_remote_code: bool = False
    external_lib: str | None = None
    enable_gradient_checkpointing: bool = True
    lora_rank: int = 0
    lora_alpha: int = 64
    lora_init_weights: str = "gaussian"
    target_modules: str | list[str] | None = "all-linear"
    target_parameters: list[str] | None = None
    exclude_modules: str | None = None
    lora_adapter_path: str | None = None
    lora_dtype: str | None = None
    pipeline: DiffusionPipelineConfig = field(default_factory=DiffusionPipelineConfig)
    algo: DiffusionRolloutAlgoConfig | None = field(default_factory=DiffusionRolloutAlgoConfig)
    fsdp_layer_prefixes: list[str] = field(default_factory=lambda: ["transformer_blocks."])

    def __post_init__(self) -> None:
        if self.local_path is None:
            self.local_path = self.path or None
