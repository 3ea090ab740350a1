"""Drives the rollout adapter over an upstream pipeline that has no model, only its denoising loop."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from scaffold.verify.measured import NotDrivableError
from scaffold.verify.subject.stand_in_velocity import velocity_of

MODELS = "vllm_omni.diffusion.models."
TRAJECTORY = ("latents", "timesteps", "log_probs")


@dataclass
class Rolled:
    """One rollout.

    Attributes:
        latents: ``(1, W + 1, …)``, as it reaches training; None where the adapter returned none.
        timesteps: ``(1, W)``.
        log_probs: ``(1, W)``.
        walked: every sample of the loop, first and last included.
        extra_args: the request's settings as upstream saw them.
        prompt: the request's prompt as upstream saw it.
        sigmas: noise levels that upstream stepped from.
    """

    latents: Tensor | None
    timesteps: Tensor | None
    log_probs: Tensor | None
    walked: list[Tensor]
    extra_args: dict[str, Any]
    prompt: Any
    sigmas: list[float]


class RolloutDriver:
    """The rollout adapter and a stand-in for what it inherits from.

    The stand-in walks the schedule and calls the scheduler as ``inspect`` says that upstream does, and offers the
    trajectory where upstream does. It is put into the upstream class itself, in this process only.

    Args:
        subject: the package.
        velocity: the velocity of a sample.
        dtype: dtype of the velocity that the scheduler gets.

    Raises:
        NotDrivableError: how upstream loops is not known, or the adapter inherits from no upstream pipeline.
    """

    def __init__(
        self, subject: Any, velocity: Callable[[Tensor], Tensor] = velocity_of, dtype: torch.dtype | None = None
    ) -> None:
        self.facts = subject.job["upstream"]
        if "unknown" in self.facts:
            raise NotDrivableError(self.facts["unknown"])
        if self.facts.get("direction") not in (None, "descending") or self.facts.get("inline"):
            raise NotDrivableError("the upstream loop updates its samples itself or runs upwards; see level rollout")
        self.subject, self.velocity, self.dtype = subject, velocity, dtype
        self._shape = subject.geometry.shape
        upstream = [kind for kind in subject.rollout.__mro__ if kind.__module__.startswith(MODELS)]
        if not upstream:
            raise NotDrivableError(f"{subject.rollout.__name__} inherits from no pipeline of {MODELS.rstrip('.')}")
        self._stand_in(upstream[0])
        os.environ["LOCAL_RANK"] = "0"
        try:
            self.pipeline = subject.rollout(od_config=SimpleNamespace(model="", dtype=torch.float32, revision=None))
        except Exception as error:
            raise NotDrivableError(
                f"{subject.rollout.__name__}(od_config=…) raises {type(error).__name__}: {error}"
            ) from error

    def points(self, steps: int) -> int:
        """Points of upstream's schedule when ``steps`` are asked for."""
        return steps + (1 if self.facts["steps"] == "n" else 0)

    def _stand_in(self, upstream: Any) -> None:
        facts, driver = self.facts, self

        def without_model(pipeline: Any, *, od_config: Any = None, prefix: str = "", **_: Any) -> None:
            nn.Module.__init__(pipeline)
            pipeline.od_config, pipeline.prefix = od_config, prefix
            pipeline.device = torch.device("cpu")
            setattr(pipeline, facts["scheduler_attribute"], None)
            if facts.get("kwargs_attribute"):
                setattr(pipeline, facts["kwargs_attribute"], {})

        upstream.__init__ = without_model
        upstream.forward = lambda pipeline, request, *args, **kwargs: driver._loop(pipeline, request)

    def _loop(self, pipeline: Any, request: Any) -> Any:
        facts, params = self.facts, request.sampling_params
        points = self.points(int(params.num_inference_steps))
        # In float32, as upstream computes it: training looks noise levels up by their bits.
        times = torch.linspace(1, 0, points) if points > 1 else torch.zeros(0)
        levels = facts["shift"] * times / (1 + (facts["shift"] - 1) * times)
        sigmas = levels.tolist()
        # As upstream: a request's seed goes to the global generator, which the initial latents are drawn from.
        torch.manual_seed(int(params.seed))
        self.own_seeds += 1
        sample = torch.randn(1, *self._shape)
        if facts["sample_rank"] == sample.ndim - 1:
            sample = sample[0]
        extra = getattr(pipeline, facts["kwargs_attribute"]) if facts.get("kwargs_attribute") else {}
        walked, log_probs, taken = [sample], [], []
        scheduler = getattr(pipeline, facts["scheduler_attribute"])
        for i in range(points - 1):
            out = scheduler.step(*self._positional(levels, i, sample), **self._named(levels, i, sample), **extra)
            sample = out.prev_sample
            walked.append(sample.clone())
            taken.append(levels[i])
            if getattr(out, "log_prob", None) is not None:
                log_probs.append(out.log_prob)
        self._seen = (walked, copy.deepcopy(params.extra_args), copy.deepcopy(request.prompts[0]), sigmas[:-1])
        return self._output(walked, taken, log_probs, params.return_trajectory_latents)

    own_seeds = 0
    _seen: tuple[Any, ...] = ([], {}, None, [])

    def _values(self, levels: Tensor, i: int, sample: Tensor) -> list[Any]:
        velocity = self.velocity(sample)
        values = {
            "model_output": velocity if self.dtype is None else velocity.to(self.dtype),
            "timestep": levels[i],
            "sigma": levels[i],
            "sample": sample,
            "dt": levels[i] - levels[i + 1],
            "generator": None,
        }
        unknown = [name for name in self.facts["arguments"] if name not in values]
        if unknown:
            raise NotDrivableError(f"what upstream passes to the scheduler as {unknown[0]!r} is not known")
        return [values[name] for name in self.facts["arguments"]]

    def _by_keyword(self) -> list[bool]:
        return self.facts.get("by_keyword") or [False] * len(self.facts["arguments"])

    def _positional(self, levels: Tensor, i: int, sample: Tensor) -> list[Any]:
        values = zip(self._values(levels, i, sample), self._by_keyword(), strict=True)
        return [value for value, named in values if not named]

    def _named(self, levels: Tensor, i: int, sample: Tensor) -> dict[str, Any]:
        values = zip(self.facts["parameters"], self._values(levels, i, sample), self._by_keyword(), strict=True)
        return {name: value for name, value, named in values if named}

    def _output(self, walked: list[Tensor], taken: list[Tensor], log_probs: list[Tensor], wanted: bool) -> Any:
        output = import_module("vllm_omni.diffusion.data").DiffusionOutput
        payload: dict[str, Any] = {"image": torch.zeros(3, 2, 2)}
        kept: dict[str, Any] = {}
        if wanted:
            kept = {"latents": torch.stack(walked), "timesteps": torch.stack(taken) if taken else None}
        if log_probs:
            kept["log_probs"] = torch.stack(log_probs)
        fields = self.facts.get("trajectory") or [f"trajectory_{name}" for name in TRAJECTORY]
        named = {field: name for field in fields for name in TRAJECTORY if field.endswith(name)}
        arguments: dict[str, Any] = {}
        for field, name in named.items():
            if name not in kept:
                continue
            if field.startswith("output."):
                payload.setdefault("trajectory", {})[name] = kept[name]
            else:
                arguments[f"trajectory_{name}"] = kept[name]
        return output(output={"payload": payload, "metadata": {}}, **arguments)

    def request(self, *, steps: int, seed: int, prompt: dict[str, Any], **extra_args: Any) -> Any:
        """What the engine hands ``forward``."""
        image = self.subject.geometry
        params = import_module("vllm_omni.inputs.data").OmniDiffusionSamplingParams(
            height=image.height, width=image.width, num_inference_steps=steps, seed=seed, extra_args=extra_args
        )
        kind = import_module("vllm_omni.diffusion.request").OmniDiffusionRequest
        try:
            batch = import_module("vllm_omni.diffusion.worker.request_batch").DiffusionRequestBatch
        except ModuleNotFoundError:
            return kind(prompts=[prompt], sampling_params=params, request_id="verify")
        return batch([kind(prompt=prompt, sampling_params=params, request_id="verify")])

    def roll_out(
        self, *, steps: int = 6, seed: int = 3, prompt: dict[str, Any] | None = None, **extra_args: Any
    ) -> Rolled:
        """Run one request.

        Args:
            steps: steps asked for.
            seed: of the request.
            prompt: the prompt; a text and its ids unless given.
            extra_args: over a noise level of 0.7, ``sde``, log-probs wanted.
        """
        prompt = prompt or {"prompt": "a sign", "prompt_token_ids": [1, 2, 3]}
        settings = {"noise_level": 0.7, "sde_type": "sde", "logprobs": True, **extra_args}
        output = self.pipeline(self.request(steps=steps, seed=seed, prompt=prompt, **settings))
        custom = getattr(output, "custom_output", None) or {}
        latents, timesteps, log_probs = (
            custom.get(f"all_{name}") if (value := getattr(output, f"trajectory_{name}", None)) is None else value
            for name in TRAJECTORY
        )
        walked, seen_args, seen_prompt, sigmas = self._seen
        return Rolled(latents, timesteps, log_probs, walked, seen_args, seen_prompt, sigmas)
