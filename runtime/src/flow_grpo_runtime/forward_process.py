"""DiffusionNFT and DPO: predictions at clean latents that noise is added to, in place of the steps of a rollout.

The rollout records the calls of its denoiser at its own noise levels. Training draws noise of its own, and there makes
the calls again: of what they are given, the latents are training's, what follows the noise level is moved to
training's, and the rest is as it was recorded. Levels of DiffusionNFT lie at most a thousandth below one of the
rollout's, those of DPO anywhere between.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from diffusers import FlowMatchEulerDiscreteScheduler

from .model import Common
from .replay import DenoiserCalls, read_calls
from .training import RecordedTraining
from .values import DICT, EACH, LIST, SAME, TUPLE

SCALE = 1000.0  # what VeRL-Omni calls a noise level of 1
_NEAR = {torch.float32: 1e-5, torch.float64: 1e-5}  # relative; half precision rounds to its own
_NEAR_HALF = 2e-2
_ENOUGH = 3  # steps that say whether a value lies on a line over their levels


class ForwardProcess(RecordedTraining):
    """Goes before a training adapter: its module predicts the velocity, noise minus clean latents, at noisy latents.

    Attributes:
        between: whether levels may lie anywhere between those of the rollout.
    """

    between: ClassVar[bool] = False

    @classmethod
    def prepare_model_inputs(
        cls,
        module: torch.nn.Module,
        model_config: Any,
        latents: torch.Tensor,
        timesteps: torch.Tensor,
        prompt_embeds: torch.Tensor | None,
        prompt_embeds_mask: torch.Tensor | None,
        negative_prompt_embeds: torch.Tensor | None,
        negative_prompt_embeds_mask: torch.Tensor | None,
        micro_batch: Any,
        step: int,
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Arguments of the module's ``forward``.

        Args:
            module: the training module.
            model_config: its configuration.
            latents: ``(B, …)``, noisy.
            timesteps: ``(B,)``, a thousand times their noise levels.
            prompt_embeds, prompt_embeds_mask, negative_prompt_embeds, negative_prompt_embeds_mask: not used.
            micro_batch: holds the recorded calls.
            step: not used: ``timesteps`` says which of the recorded ones is meant.

        Returns:
            ``{"calls": …}`` and None: all branches are in the first.

        Raises:
            KeyError: the micro-batch has no recorded calls.
            ValueError: a level is none of the rollout's, or what was recorded does not say what the calls are at it.
        """
        common: Common = cls.common
        cls.adopt(module)
        recorded = [
            at_level(call, float(time) / SCALE, between=cls.between)
            for call, time in zip(read_calls(micro_batch), timesteps, strict=True)
        ]
        return {"calls": DenoiserCalls(common.CALLS, recorded, latents.float(), 0)}, None

    @classmethod
    def forward(
        cls,
        module: torch.nn.Module,
        model_config: Any,
        model_inputs: dict[str, Any],
        negative_model_inputs: dict[str, Any] | None = None,
    ) -> torch.Tensor:
        """The velocity ``(B, …)`` float32 that the pipeline would step with."""
        calls: DenoiserCalls = model_inputs["calls"]
        return calls.velocity(module(calls=calls)[0].float())


class PairedForwardProcess(ForwardProcess):
    """The same where VeRL-Omni draws noise and its level for each pair, as DPO does."""

    between = True

    @classmethod
    def build_scheduler(cls, model_config: Any) -> Any:
        """What levels are drawn from, and noise is added by: a thousand of them, shifted where the release says so."""
        path = os.path.join(str(model_config.local_path), "scheduler", "scheduler_config.json")
        stated: dict[str, Any] = {}
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                stated = json.load(file)
        shift = 1.0 if stated.get("use_dynamic_shifting") else float(stated.get("shift") or 1.0)
        made: Any = FlowMatchEulerDiscreteScheduler
        return made(num_train_timesteps=int(SCALE), shift=shift)


def at_level(recorded: Mapping[str, Any], level: float, *, between: bool = False) -> dict[str, Any]:
    """The record of one step, at a noise level that lies at most a thousandth below that of a recorded one.

    Args:
        recorded: of one sample, see :func:`replay.read_calls`; every step of its rollout is in it.
        level: of the latents that the calls are made with.
        between: whether it may be another one than a step's, too; it is then that of the step which passes it.

    Raises:
        ValueError: there is no such step, or it cannot be had at another level.
    """
    levels = recorded["levels"][:-1].double()
    if len(levels) != len(recorded["tapes"]):
        raise ValueError(f"{len(recorded['tapes'])} of {len(levels)} steps were recorded: all are needed")
    apart = levels - level
    steps = ((apart > -1e-6) & (apart < 1 / SCALE)).nonzero().flatten()
    if len(steps):
        step = int(steps[-1])
    elif between:
        # A step goes on as it began to the level of the next: beyond both ends the outermost ones do.
        step = max(int((levels >= level).sum()) - 1, 0)
    else:
        raise ValueError(
            f"noise level {level:.6f} is none of the rollout's: {[round(float(one), 6) for one in levels]}"
        )
    if recorded["free"][step] is not None:
        raise ValueError("a part of the latents is given: no noise may be added to it")
    number, constants = recorded["tapes"][step]
    alike = [own for at, (other, own) in enumerate(recorded["tapes"]) if other == number]
    theirs = torch.stack([levels[at] for at, (other, _) in enumerate(recorded["tapes"]) if other == number])
    place = [at for at, (other, _) in enumerate(recorded["tapes"]) if other == number].index(step)
    few = len(levels) if len(levels) < _ENOUGH or not constants else len(alike)
    if not len(steps) and few < _ENOUGH:
        raise ValueError(
            f"{few} of {len(levels)} steps compute as at noise level {level:.6f}, and {_ENOUGH} say how that changes:"
            " take more steps (actor_rollout_ref.rollout.pipeline.num_inference_steps)"
        )
    moved = [
        _number(f"what its update computes with, number {at + 1},", [own[at] for own in alike], theirs, place, level)
        for at in range(len(constants))
    ]
    return {
        **recorded,
        "calls": [_moved("a call", node, levels, step, level) for node in recorded["calls"]],
        "predictions": [recorded["predictions"][step]],
        "free": [None],
        "tapes": [(number, moved)],
    }


def _moved(name: str, node: Sequence[Any], levels: torch.Tensor, step: int, level: float) -> Sequence[Any]:
    """A node of an argument, see ``values``, at one step and another level."""
    kind, content = node[0], node[1]
    if kind == DICT:
        return kind, {key: _moved(key, item, levels, step, level) for key, item in content.items()}
    if kind in (LIST, TUPLE):
        return kind, [_moved(name, item, levels, step, level) for item in content]
    if kind != EACH:
        return node
    if any(item[0] != SAME for item in content):
        raise ValueError(f"the denoiser's {name} has another form in each step, not another value")
    return SAME, _number(f"the denoiser's {name}", [item[1] for item in content], levels, step, level)


def _number(name: str, values: Sequence[Any], levels: torch.Tensor, step: int, level: float) -> Any:
    """A value of one step at another level, where all of its steps lie on a line over their levels.

    Raises:
        ValueError: they do not.
    """
    own = values[step]
    tensors = [torch.as_tensor(value).double() for value in values if isinstance(value, torch.Tensor | float)]
    floating = not isinstance(own, torch.Tensor) or own.is_floating_point()
    if len(tensors) != len(values) or any(tensor.shape != tensors[0].shape for tensor in tensors) or not floating:
        if all(_same(value, own) for value in values):
            return own
        raise ValueError(f"{name} changes from step to step, and is no number")
    if all(torch.equal(tensor, tensors[0]) for tensor in tensors):
        return own
    if levels[0] == levels[-1]:
        raise ValueError(f"{name} differs between two steps of one noise level")
    slope = (tensors[0] - tensors[-1]) / (levels[0] - levels[-1])
    largest = torch.stack(tensors).abs().max().clamp_min(1e-12)
    dtype = own.dtype if isinstance(own, torch.Tensor) else torch.float32
    off = max(
        float((tensor - tensors[-1] - slope * (at - levels[-1])).abs().max() / largest)
        for tensor, at in zip(tensors, levels, strict=True)
    )
    if off > _NEAR.get(dtype, _NEAR_HALF):
        raise ValueError(
            f"{name} does not follow the noise level in a straight line ({off:.1e} off, relative): its value at a level"
            " between those of the rollout is not known"
        )
    # From its own step on, so that nothing changes at that step's level.
    made = tensors[step] + slope * (level - levels[step])
    return made.to(own.device, own.dtype) if isinstance(own, torch.Tensor) else float(made)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and torch.equal(one, other)
    return type(one) is type(other) and bool(one == other)
