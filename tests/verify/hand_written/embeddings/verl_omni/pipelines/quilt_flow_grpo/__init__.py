"""Quilt: training holds the denoiser alone, the rollout sends what its text encoder made of a prompt."""

from .quilt import Quilt, QuiltTrainer

__all__ = ["Quilt", "QuiltTrainer"]
