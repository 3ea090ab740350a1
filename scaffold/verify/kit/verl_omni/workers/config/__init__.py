"""The configuration that adapters are handed."""

from .diffusion import DiffusionModelConfig, DiffusionPipelineConfig, DiffusionRolloutAlgoConfig

__all__ = ["DiffusionModelConfig", "DiffusionPipelineConfig", "DiffusionRolloutAlgoConfig"]
