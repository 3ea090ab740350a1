"""The settings of both sides, in the form that each side takes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

OUTPUT_TYPE = "image"  # verl-omni's default, for video too


@dataclass(frozen=True)
class Recipe:
    """Size in pixels, steps, noise, window, guidance that differs from the package's own, and the training step.

    With ``whole`` a request has all that VeRL-Omni's pipeline configuration has, as its agent loop sends it.
    ``guidance`` is empty unless a scenario changes it, so that two adapters with different defaults differ here too;
    what verl-omni sends anyway stands in it. ``brought`` are values that a request brings beside its prompt.
    """

    height: int
    width: int
    num_inference_steps: int = 6
    noise_level: float = 0.7
    sde_type: str = "sde"
    sde_window_size: int | None = None
    sde_window_range: tuple[int, int] | None = None
    guidance: dict[str, Any] = field(default_factory=dict)
    num_frames: int | None = None
    global_steps: int = 1
    brought: dict[str, Any] = field(default_factory=dict)
    whole: bool = False

    def model_config(self, architecture: str, algorithm: str, checkpoint: str) -> Any:
        """verl-omni's ``DiffusionModelConfig``; guidance becomes attributes of ``.pipeline``, declared or not."""
        from verl_omni.workers.config import diffusion

        found: Any = diffusion
        pipeline = self.pipeline_config()
        algo = _declared(
            found.DiffusionRolloutAlgoConfig,
            noise_level=self.noise_level,
            sde_type=self.sde_type,
            sde_window_size=self.sde_window_size,
            sde_window_range=None if self.sde_window_range is None else list(self.sde_window_range),
        )
        return _declared(
            found.DiffusionModelConfig,
            path=checkpoint,
            architecture=architecture,
            algorithm=algorithm,
            attn_backend="native",
            load_tokenizer=False,
            pipeline=pipeline,
            algo=algo,
        )

    def pipeline_config(self) -> Any:
        """verl-omni's ``DiffusionPipelineConfig``, what it leaves at its default included."""
        from verl_omni.workers.config import diffusion

        found: Any = diffusion
        pipeline = _declared(
            found.DiffusionPipelineConfig,
            height=self.height,
            width=self.width,
            num_inference_steps=self.num_inference_steps,
            **self.guidance,
        )
        for name, value in self.guidance.items():
            if getattr(pipeline, name, None) != value:
                setattr(pipeline, name, value)
        return pipeline

    def sampling(self, seed: int) -> dict[str, Any]:
        """The flat settings of one request, as the agent loop makes them of the same configuration.

        Training requests have the trainer's step. Validation, at noise level 0, has none in verl-omni's first loop
        and asks for no log-probs.
        """
        several = {"guidance", "brought", "whole"}
        configured = vars(self.pipeline_config()) if self.whole else {}
        plain = {
            entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self) if entry.name not in several
        }
        if self.num_frames is None:
            del plain["num_frames"]
        if self.sde_window_range is not None:
            plain["sde_window_range"] = list(self.sde_window_range)
        training = self.noise_level > 0.0
        if not training:
            del plain["global_steps"]
        return {
            **{name: value for name, value in configured.items() if not name.startswith("_")},
            **plain,
            **self.brought,
            **self.guidance,
            "output_type": OUTPUT_TYPE,
            "logprobs": training,
            "seed": seed,
        }


def _declared(cls: Any, **values: Any) -> Any:
    """Make ``cls`` of the values that it declares; releases differ in what they have."""
    names = {entry.name for entry in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in values.items() if name in names})
