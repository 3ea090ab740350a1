"""The package's training adapter, called in the order in which verl-omni's engine calls it."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from scaffold.files.resources import runtime_root
from scaffold.verify.rollout.engine_side import recorder
from scaffold.verify.rollout.engine_side.recipe import Recipe
from scaffold.verify.rollout.engine_side.sources import Adapters
from scaffold.verify.rollout.engine_side.tiny.diffusers_denoiser import ordinary_module
from scaffold.verify.rollout.engine_side.trajectory import Trajectory
from scaffold.verify.subject.columns import IDS, encoded_columns

SAME_SHIFT = 1e-6


@dataclass(frozen=True)
class Recomputed:
    """One micro-batch.

    Attributes:
        log_probs: ``(B, T)`` float32.
        velocities: one ``(B, …)`` float32 a step; None where the step was not seen.
        means: one ``(B, …)`` a step, the mean of the next sample.
        misfit: which of the rollout's noise levels training's schedule lacks; None if none.
        shifts: how ``mu`` of the two schedules differs, even if a tiny checkpoint's scheduler ignores it.
    """

    log_probs: torch.Tensor
    velocities: list[torch.Tensor | None]
    means: list[torch.Tensor]
    misfit: str | None = None
    shifts: str | None = None


class UnusableError(Exception):
    """Training cannot score the recorded rollout; the message says why."""


class Training:
    """The training module of one package, on the CPU."""

    def __init__(self, adapters: Adapters, checkpoint: str, dtype: torch.dtype, column: str, module: Any) -> None:
        self.adapters, self.checkpoint, self.dtype, self.column = adapters, checkpoint, dtype, column
        self.adapter = adapters.training
        self.module = module

    @classmethod
    def load(cls, adapters: Adapters, checkpoint: str, dtype: torch.dtype, column: str, recipe: Recipe) -> Training:
        """Load the module as the adapter does."""
        config = recipe.model_config(adapters.architecture, adapters.algorithm, checkpoint)
        module = adapters.training.build_module(config, torch_dtype=dtype)
        if module is None:
            module = ordinary_module(checkpoint, dtype)
        return cls(adapters, checkpoint, dtype, column, module.to(dtype))

    @property
    def pixels_per_token(self) -> int | None:
        """Side, in pixels, of what one latent token stands for in this checkpoint; None where the module is silent."""
        value = getattr(getattr(self.module, "config", None), "pixels_per_token", None)
        return value if isinstance(value, int) and value > 0 else None

    def copy(self, dtype: torch.dtype | None = None) -> Training:
        """The same with a module of its own, in ``dtype`` if given; changes stay in it."""
        module = copy.deepcopy(self.module)
        to = dtype or self.dtype
        return Training(self.adapters, self.checkpoint, to, self.column, module.to(to))

    def with_own_buffers(self, recipe: Recipe) -> Training:
        """A copy whose buffers are as training has them, which keeps its module in float32 and casts parameters only.

        Parameters stay in half precision, as mixed precision makes them.
        """
        found = self.copy()
        build = self.adapter.build_module(self.config(recipe), torch_dtype=torch.float32)
        if build is None:
            build = ordinary_module(self.checkpoint, torch.float32)
        exact = dict(build.to(torch.float32).named_buffers())
        for name, buffer in found.module.named_buffers():
            if name in exact and buffer.is_floating_point() and buffer.shape == exact[name].shape:
                buffer.data = exact[name].data
        return found

    def config(self, recipe: Recipe) -> Any:
        """The model configuration of a recipe."""
        return recipe.model_config(self.adapters.architecture, self.adapters.algorithm, self.checkpoint)

    def steps(self, recipe: Recipe) -> int:
        """Return the number of steps of training's schedule, one less than its noise levels."""
        scheduler = self.adapter.build_scheduler(self.config(recipe))
        return min(len(scheduler.timesteps), len(scheduler.sigmas) - 1)

    def micro_batch(self, samples: Sequence[Trajectory], token_ids: Sequence[Sequence[int]]) -> Any:
        """The columns that training reads; prompts keep their own lengths, their padded form stands beside them."""
        from tensordict import TensorDict
        from tensordict.tensorclass import NonTensorData, NonTensorStack

        longest = max(map(len, token_ids))
        padded = [[0] * (longest - len(ids)) + list(ids) for ids in token_ids]
        mask = [[0] * (longest - len(ids)) + [1] * len(ids) for ids in token_ids]
        column = [NonTensorData(np.asarray(ids, dtype=np.int64)) for ids in token_ids]
        batch: dict[str, Any] = {
            "all_latents": torch.stack([sample.latents for sample in samples]),
            "all_timesteps": torch.stack([sample.timesteps for sample in samples]),
            "prompts": torch.tensor(padded),
            "attention_mask": torch.tensor(mask),
            self.column: NonTensorStack.from_list(column),
        }
        for name in samples[0].extra:
            values = [sample.extra[name] for sample in samples]
            if all(isinstance(value, torch.Tensor) for value in values):
                batch[name] = torch.stack(filled(values))
            elif all(isinstance(value, bytes) for value in values):
                batch[name] = NonTensorStack.from_list([NonTensorData(value) for value in values])
        if IDS in batch and [list(ids) for ids in token_ids] != [sample.token_ids for sample in samples]:
            batch |= encoded_columns(token_ids, batch[IDS].shape[1])  # a deliberate mistake in the prompts
        return TensorDict(batch, batch_size=[len(samples)])

    @property
    def carries(self) -> bool:
        """Whether noise levels and what the pipeline makes of its predictions come with the rollout's record."""
        common = getattr(self.adapter, "common", None)
        return common is not None and hasattr(common, "CALLS") and not hasattr(common, "guide")

    def runtime(self, name: str) -> Any:
        """A module of the runtime that the package rests on; the tool's own where no code of the package reaches it."""
        base = next(kind.__module__ for kind in self.adapter.__mro__[1:] if kind.__module__.endswith(".training"))
        package = base.rpartition(".")[0]
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(f"{package}.{name}")
        found = importlib.util.spec_from_file_location(f"{package}.{name}", runtime_root() / f"{name}.py")
        assert found is not None
        assert found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module
        found.loader.exec_module(module)
        return module

    def records(self) -> Any:
        """The runtime's module that reads and writes records, whatever the package's version calls it."""
        return importlib.import_module(self.runtime("replay").read_column.__module__)

    def recompute(
        self, samples: Sequence[Trajectory], recipe: Recipe, token_ids: Sequence[Sequence[int]] | None = None
    ) -> Recomputed:
        """Recompute every recorded step from the latents that the rollout recorded."""
        batch = self.micro_batch(samples, token_ids or [sample.token_ids for sample in samples])
        return self.recompute_batch(batch, recipe, samples[0].shift)

    @torch.no_grad()
    def recompute_batch(self, batch: Any, recipe: Recipe, shift: float | None = None) -> Recomputed:
        """The same of a micro-batch, which holds ``all_latents`` and ``all_timesteps`` and what the adapter reads.

        ``shift`` is the rollout's ``mu``. Where a side gives none, it may have bent its noise levels itself.
        """
        config = self.config(recipe)
        with recorder.shifts() as shifts:
            scheduler = self.adapter.build_scheduler(config)
        self.module.train()
        self.adapter.configure_train_mode(self.module)
        embeddings = ("prompt_embeds", "prompt_embeds_mask", "negative_prompt_embeds", "negative_prompt_embeds_mask")
        rows, velocities, means = [], [], []
        kept, count = batch["all_latents"].shape[1], batch["all_timesteps"].shape[1]
        misfit = None if self.carries else schedule_misfit(batch["all_timesteps"], scheduler)
        own = shifts[-1] if shifts else None
        told = f"set_timesteps is given mu = {own} in training and {shift} in the rollout"
        if misfit is not None and own != shift:
            misfit = f"{told}; {misfit}"
        differs = own is not None and shift is not None and abs(own - shift) > SAME_SHIFT * max(1.0, abs(shift))
        short = None if kept == count + 1 else f"{kept} latents for {count} recorded steps, which need {count + 1}"
        for step in range(count):
            inputs, negative = self.adapter.prepare_model_inputs(
                module=self.module,
                model_config=config,
                latents=batch["all_latents"],
                timesteps=batch["all_timesteps"],
                **{name: batch.get(name, None) for name in embeddings},
                micro_batch=batch,
                step=step,
            )
            with recorder.steps() as taken:
                try:
                    log_prob, mean, *_ = self.adapter.forward_and_sample_previous_step(
                        module=self.module,
                        scheduler=scheduler,
                        model_config=config,
                        model_inputs=self._cast(inputs),
                        negative_model_inputs=self._cast(negative),
                        scheduler_inputs=batch,
                        step=step,
                    )
                except Exception as error:
                    if (short or misfit) is None:
                        raise
                    raise UnusableError(short or misfit) from error
            rows.append(log_prob.float())
            means.append(mean.float())
            velocities.append(taken[-1].velocity if taken else None)
        return Recomputed(torch.stack(rows, dim=1), velocities, means, misfit, (misfit or told) if differs else None)

    def _cast(self, inputs: dict[str, Any] | None) -> dict[str, Any] | None:
        """Latents travel in float32; mixed precision casts what goes into a module."""
        if inputs is None or self.dtype == torch.float32:
            return inputs
        return {
            name: value.to(self.dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for name, value in inputs.items()
        }

    def change_trainable(self, recipe: Recipe) -> list[str]:
        """Change every parameter that training without LoRA updates, by a tenth of its own size; returns names."""
        self.module.requires_grad_(True)
        choose = getattr(self.adapter, "configure_trainable_params", None)  # the oldest releases train everything
        if choose is not None:
            choose(self.module, self.config(recipe))
        self.module.to(self.dtype)
        trained = {name: value for name, value in self.module.named_parameters() if value.requires_grad}
        change(trained.values(), 0.1, seed=1)
        return list(trained)

    def base_weights(self) -> list[tuple[str, torch.Tensor]]:
        """Every entry of the state dict under the name by which the actor sends it."""
        return [(f"transformer.{name}", tensor.detach().clone()) for name, tensor in self.module.state_dict().items()]


def filled(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors ``(L, …)`` of different lengths padded with zeros at the end, as VeRL-Omni pads embeddings."""
    longest = max((value.shape[0] for value in values if value.ndim), default=0)
    return [
        torch.nn.functional.pad(value, (0, 0) * (value.ndim - 1) + (0, longest - value.shape[0]))
        if value.ndim and value.shape[0] < longest
        else value
        for value in values
    ]


def schedule_misfit(timesteps: torch.Tensor, scheduler: Any) -> str | None:
    """Return which of a rollout's timesteps ``(B, T)`` a schedule lacks; None if it has them all."""
    known = torch.as_tensor(scheduler.timesteps).detach().float().cpu().reshape(-1)
    for row in timesteps.float().cpu():
        for step, timestep in enumerate(row):
            if not len(known) or float((known - timestep).abs().min()) > 1e-4 * max(1.0, float(timestep.abs())):
                shown = ", ".join(f"{float(value):.4g}" for value in known[:4])
                return (
                    f"training's schedule has no timestep {float(timestep):.6g}, which step {step + 1} of the rollout"
                    f" starts at; it begins {shown}"
                )
    return None


@torch.no_grad()
def change(parameters: Iterable[torch.nn.Parameter], scale: float, seed: int) -> None:
    """Change each parameter by ``scale`` of its own size."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        size = parameter.float().pow(2).mean().sqrt().clamp_min(1e-3)
        noise = torch.randn(parameter.shape, generator=generator) * size * scale
        parameter.add_(noise.to(parameter.dtype))
