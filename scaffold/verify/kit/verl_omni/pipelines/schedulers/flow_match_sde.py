"""Stochastic flow-matching steps with log-probabilities (Flow-GRPO, arXiv:2505.05470; DanceGRPO, arXiv:2505.07818).

Notation: sigma and sigma_next are the noise levels of a step, dt = sigma_next - sigma < 0, v the model's velocity,
x the sample. Every operation is float32 and keeps the order of verl-omni's, so that numbers agree to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from diffusers.utils.outputs import BaseOutput
from diffusers.utils.torch_utils import randn_tensor

SDEType = Literal["sde", "cps", "dance_sde"]


@dataclass
class FlowMatchSDEDiscreteSchedulerOutput(BaseOutput):
    """One step.

    Attributes:
        prev_sample: the next sample of the denoising loop, shape of the sample, float32.
        log_prob: ``(B,)``, or None where it was not asked for.
        prev_sample_mean: mean of the transition, shape of the sample.
        std_dev_t: its standard deviation, before the factor sqrt(-dt) for ``sde``; broadcasts against the sample.
    """

    prev_sample: torch.Tensor
    log_prob: torch.Tensor | None
    prev_sample_mean: torch.Tensor
    std_dev_t: torch.Tensor


class _Transition(NamedTuple):
    """Mean, reported deviation, the factor of the noise, and whether the log-prob is a Gaussian's."""

    mean: torch.Tensor
    std_dev: torch.Tensor
    noise_scale: torch.Tensor
    gaussian: bool


class _Step(NamedTuple):
    """What a transition depends on; sigmas are scalars or ``(B, 1, ...)``."""

    sample: torch.Tensor
    velocity: torch.Tensor
    sigma: torch.Tensor
    sigma_next: torch.Tensor
    second_sigma: torch.Tensor
    noise_level: float | torch.Tensor

    @property
    def dt(self) -> torch.Tensor:
        return self.sigma_next - self.sigma

    @property
    def clean(self) -> torch.Tensor:
        """The sample at sigma 0 that the velocity points to."""
        return self.sample - self.sigma * self.velocity


def _sde(step: _Step) -> _Transition:
    sigma, dt = step.sigma, step.dt
    # sigma = 1 has no finite deviation; the schedule's second point takes its place, in the denominator only.
    denominator = 1 - torch.where(sigma == 1, step.second_sigma, sigma)
    std_dev = torch.sqrt(sigma / denominator) * step.noise_level
    variance = std_dev**2
    mean = (
        step.sample * (1 + variance / (2 * sigma) * dt)
        + step.velocity * (1 + variance * (1 - sigma) / (2 * sigma)) * dt
    )
    return _Transition(mean, std_dev, std_dev * torch.sqrt(-dt), gaussian=True)


def _cps(step: _Step) -> _Transition:
    if isinstance(step.noise_level, torch.Tensor):
        sine: float | torch.Tensor = torch.sin(step.noise_level * (math.pi / 2))
    else:
        sine = math.sin(step.noise_level * math.pi / 2)
    std_dev = step.sigma_next * sine
    noise = step.sample + step.velocity * (1 - step.sigma)
    mean = step.clean * (1 - step.sigma_next) + noise * torch.sqrt(step.sigma_next**2 - std_dev**2)
    return _Transition(mean, std_dev, std_dev, gaussian=False)


def _dance_sde(step: _Step) -> _Transition:
    dt = step.dt
    pull = (step.sample - step.clean * (1 - step.sigma)) / step.sigma**2
    mean = step.sample + dt * step.velocity + 0.5 * step.noise_level**2 * pull * dt
    std_dev = step.noise_level * torch.sqrt(-dt)
    return _Transition(mean, std_dev, std_dev, gaussian=True)


_TRANSITIONS = {"sde": _sde, "cps": _cps, "dance_sde": _dance_sde}


def _log_prob(prev_sample: torch.Tensor, transition: _Transition, normalizer: bool) -> torch.Tensor:
    """Log-probability of ``prev_sample``, averaged over all but the batch: ``(B,)``."""
    squared = (prev_sample.detach() - transition.mean) ** 2
    if not transition.gaussian:
        values = -squared
    else:
        values = -squared / (2 * transition.noise_scale**2)
        if normalizer:
            root_of_two_pi = torch.sqrt(2 * torch.as_tensor(math.pi))
            values = values - torch.log(transition.noise_scale) - torch.log(root_of_two_pi)
    return values.mean(dim=tuple(range(1, values.ndim)))


class FlowMatchSDEDiscreteScheduler(FlowMatchEulerDiscreteScheduler):
    """diffusers' flow-matching schedule with a stochastic step."""

    def step(  # type: ignore[override]  # torch.Tensor for diffusers' torch.FloatTensor
        self,
        model_output: torch.Tensor,
        timestep: float | torch.Tensor,
        sample: torch.Tensor,
        s_churn: float = 0.0,
        s_tmin: float = 0.0,
        s_tmax: float = float("inf"),
        s_noise: float = 1.0,
        generator: torch.Generator | list[torch.Generator] | None = None,
        per_token_timesteps: torch.Tensor | None = None,
        return_dict: bool = True,
        noise_level: float = 0.7,
        prev_sample: torch.Tensor | None = None,
        sde_type: SDEType = "sde",
        return_logprobs: bool = True,
        include_logprob_normalizer: bool = True,
    ) -> FlowMatchSDEDiscreteSchedulerOutput | tuple[Any, ...]:
        """Take one step of the loop and advance ``step_index``.

        ``s_churn`` to ``s_noise`` are diffusers' and unused. The first call finds its index by ``timestep``, later
        ones count on. For the rest see :meth:`sample_previous_step`.

        Raises:
            ValueError: ``timestep`` is an integer, that is, an index rather than a value of ``timesteps``.
        """
        integer = isinstance(timestep, torch.Tensor) and timestep.dtype in (torch.int32, torch.int64)
        if integer or isinstance(timestep, int):
            raise ValueError(f"step takes a value of scheduler.timesteps, not the integer {timestep}")
        if self.step_index is None:
            self._init_step_index(timestep)  # type: ignore[arg-type]

        result = self.sample_previous_step(
            sample=sample.to(torch.float32),
            model_output=model_output,
            generator=generator,
            per_token_timesteps=per_token_timesteps,
            noise_level=noise_level,
            prev_sample=None if prev_sample is None else prev_sample.to(torch.float32),
            sde_type=sde_type,
            return_logprobs=return_logprobs,
            include_logprob_normalizer=include_logprob_normalizer,
        )
        self._step_index += 1  # type: ignore[assignment,operator]  # diffusers annotates it as None
        return FlowMatchSDEDiscreteSchedulerOutput(*result) if return_dict else result

    def sample_previous_step(
        self,
        sample: torch.Tensor,
        model_output: torch.Tensor,
        timestep: torch.Tensor | Sequence[float] | None = None,
        generator: torch.Generator | list[torch.Generator] | None = None,
        per_token_timesteps: torch.Tensor | None = None,
        noise_level: float | torch.Tensor = 0.7,
        prev_sample: torch.Tensor | None = None,
        sde_type: SDEType = "sde",
        return_logprobs: bool = True,
        return_sqrt_dt: bool = False,
        include_logprob_normalizer: bool = True,
    ) -> tuple[Any, ...]:
        """Sample the next state, or take the one given, and say how probable it is.

        Args:
            sample: ``(B, ...)`` float32.
            model_output: velocity, shape of ``sample``, float32.
            timestep: ``(B,)`` values of ``scheduler.timesteps``, looked up per sample; None uses ``step_index``.
            generator: draws the noise.
            per_token_timesteps: not supported.
            noise_level: eta, from 0 (deterministic) on.
            prev_sample: the state that was sampled before, float32; drawn where None.
            sde_type: ``sde``, ``cps`` or ``dance_sde``.
            return_logprobs: compute ``log_prob``; else it is None.
            return_sqrt_dt: add sqrt(-dt), ``(B,)``, as a fifth value.
            include_logprob_normalizer: keep the constants of the Gaussian in ``log_prob``.

        Returns:
            ``(prev_sample, log_prob, prev_sample_mean, std_dev_t[, sqrt_dt])``; ``log_prob`` is ``(B,)``.

        Raises:
            AssertionError: another ``sde_type``, or a tensor that is not float32.
            IndexError: a timestep that the schedule does not hold.
            NotImplementedError: ``per_token_timesteps`` is given.
        """
        assert sde_type in _TRANSITIONS, f"sde_type {sde_type!r} is none of {list(_TRANSITIONS)}"
        for name, tensor in (("sample", sample), ("prev_sample", prev_sample), ("model_output", model_output)):
            assert tensor is None or tensor.dtype == torch.float32, f"{name} is {tensor.dtype}, not float32"
        if per_token_timesteps is not None:
            raise NotImplementedError("per_token_timesteps is not supported")

        sigma, sigma_next = self._sigmas_around(timestep, sample.ndim)
        step = _Step(sample, model_output, sigma, sigma_next, self.sigmas[1], noise_level)
        transition = _TRANSITIONS[sde_type](step)
        if prev_sample is None:
            noise = randn_tensor(
                model_output.shape, generator=generator, device=model_output.device, dtype=model_output.dtype
            )
            prev_sample = transition.mean + transition.noise_scale * noise
        log_prob = _log_prob(prev_sample, transition, include_logprob_normalizer) if return_logprobs else None
        if not return_sqrt_dt:
            return prev_sample, log_prob, transition.mean, transition.std_dev
        sqrt_dt = torch.sqrt(-step.dt)
        per_sample = sqrt_dt.expand(sample.shape[0]).clone() if sqrt_dt.ndim == 0 else sqrt_dt.flatten()
        return prev_sample, log_prob, transition.mean, transition.std_dev, per_sample

    def _sigmas_around(
        self, timestep: torch.Tensor | Sequence[float] | None, ndim: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sigma and the next one: scalars at ``step_index``, or ``(B, 1, ...)`` of ``ndim`` dimensions."""
        if timestep is None:
            return self.sigmas[self.step_index], self.sigmas[self.step_index + 1]
        index = torch.tensor([self.index_for_timestep(value) for value in timestep])
        shape = (-1,) + (1,) * (ndim - 1)
        return self.sigmas[index].view(shape), self.sigmas[index + 1].view(shape)
