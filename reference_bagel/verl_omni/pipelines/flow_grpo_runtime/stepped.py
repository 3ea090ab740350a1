# Copyright 2026 Bytedance Ltd. and/or its affiliates
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""What every rollout adapter does with a request: its steps, its guidance, its window, and what goes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from .guidance import other_names, setting_names
from .levels import pick_sde_window
from .model import Common
from .steps import Trajectory


@dataclass(frozen=True)
class SteppedPlan:
    """How a pipeline is rolled out.

    Attributes:
        common: what rollout and training share.
        result: makes what the engine takes of the media and the trajectory.
        media_key: of the media where the pipeline's own result names none.
        default_seed: the seed of every request that brings none, in the pipeline; None where it is a random one.
    """

    common: Any
    result: Callable[..., Any] | None = None
    media_key: str = "image"
    default_seed: int | None = None


def returned(output: Any) -> Any:
    """What a pipeline made: its output, or the video that vllm-omni 0.30.0 keeps beside one that is empty."""
    beside = getattr(output, "media", None)
    return output.output if output.output is not None or beside is None else {"video": beside.video.tensor}


class SteppedRollout:
    """Goes before a pipeline of vllm-omni."""

    rollout_plan: ClassVar[Any]

    # One request at a time through ``forward``: the engine's step-wise mode would bypass the recording.
    supports_step_execution = False

    sde_scheduler: Any
    od_config: Any

    @staticmethod
    def _extra_args(params: Any) -> dict[str, Any]:
        """What a request brings beside the engine's own settings.

        Raises:
            ValueError: the request does not say how many steps it wants.
        """
        if params.num_inference_steps is None:
            raise ValueError("a rollout request needs num_inference_steps")
        if params.extra_args is None:
            params.extra_args = {}
        extra_args: dict[str, Any] = params.extra_args
        return extra_args

    def _steps(self, params: Any, extra_args: dict[str, Any], prompt: Any) -> dict[str, Any]:
        """Arguments of :meth:`RecordingScheduler.start`; ``prompt`` is the request's."""
        # No noise is how validation and the engine's warm-up are told from training: no window, no trajectory.
        noise_level = float(extra_args.get("noise_level", 0.0))
        window = None
        if noise_level > 0.0:
            slides = extra_args.get("sample_strategy") == "progressive"
            window = pick_sde_window(
                extra_args.get("sde_window_size"),
                extra_args.get("sde_window_range"),
                extra_args.get("global_steps"),
                seed=int(extra_args.get("sde_window_seed") or 0),
                every=int(extra_args.get("iters_per_group") or 1) if slides else None,
            )
        if self.rollout_plan.default_seed is not None and params.seed is None:
            # The pipeline would give every request the same noise, that of its default seed.
            params.seed = int(torch.randint(2**31, (1,)))
        return {
            "num_inference_steps": int(params.num_inference_steps),
            "window": window,
            "noise_level": noise_level,
            "sde_type": str(extra_args.get("sde_type", "sde")),
            "record_log_probs": bool(extra_args.get("logprobs", True)),
            # Not the request's own generator: seeded like the initial latents, it would repeat them as noise.
            "generator": extra_args.get("generator"),
            "seed": params.seed,
        }

    def _set_guidance(self, params: Any, extra_args: dict[str, Any]) -> dict[str, Any]:
        """Bring the request's guidance to the values that training uses, wherever the pipeline reads them.

        Under its other names, too: the pipeline may decide by one of them whether a branch runs.
        """
        common: Common = self.rollout_plan.common
        other = other_names(common)
        requested = {name: extra_args.get(name) for name in setting_names(common.CFG_DEFAULTS, other)}
        for name, value in requested.items():
            # The engine fills in a scale that a request leaves out, and says whether it did.
            if value is None and getattr(params, f"{name}_provided", True):
                requested[name] = getattr(params, name, None)
        guidance = common.resolve_guidance(requested)
        others: dict[str, list[Any]] = {}
        for name, value in guidance.items():
            for second in other.get(name, ()):
                others.setdefault(second, []).append(value)
        agreed = {second: values[0] for second, values in others.items() if values.count(values[0]) == len(values)}
        for name, value in {**agreed, **guidance}.items():
            extra_args[name] = value
            if hasattr(params, name):
                setattr(params, name, value)
            if hasattr(params, f"{name}_provided"):
                setattr(params, f"{name}_provided", True)
        return guidance

    def _result(self, output: Any, trajectory: Trajectory, columns: dict[str, Any]) -> Any:
        """What the engine takes of a pipeline's result."""
        output = output[0] if isinstance(output, list) else output
        key, media, metadata = self._media(returned(output))
        assert self.rollout_plan.result is not None
        names = ("trajectory_latents", "trajectory_timesteps", "trajectory_log_probs")
        return self.rollout_plan.result(
            output,
            media=media,
            media_key=key,
            metadata=metadata,
            trajectory=dict(zip(names, trajectory, strict=True)),
            columns=columns,
        )

    def _media(self, media: Any) -> tuple[str, Any, dict[str, Any] | None]:
        """Key, media and metadata of what the pipeline returns."""
        metadata, media_key = None, self.rollout_plan.media_key
        if isinstance(media, dict) and isinstance(media.get("payload"), dict):
            metadata, media = dict(media.get("metadata") or {}), media["payload"]
        if isinstance(media, dict):
            key = next((key for key in ("image", "video", "audio", "output") if key in media), None)
            if key is None and len(media) == 1:
                media = next(iter(media.values()))
            else:
                media_key = key or media_key
                media = media.get(media_key)
        return media_key, media, metadata
