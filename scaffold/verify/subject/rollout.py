"""Drives the rollout adapter over a stand-in of its pipeline: no model, only its loop, where the adapter keeps it."""

from __future__ import annotations

import copy
import inspect
import math
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import CodeType, SimpleNamespace
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor, nn

from scaffold.verify.formulas import shifted_sigmas, truncated_sigmas
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.rollout.engine_side.sources import pipelines_above
from scaffold.verify.subject.character_tokenizer import tokenizer_of
from scaffold.verify.subject.stand_in_velocity import velocity_of

TRAJECTORY = ("latents", "timesteps", "log_probs")
ROOM = 4096  # for a prompt: an id for each character is several times what a tokenizer makes of it


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
        sigmas: noise levels that were stepped from.
        times: what the scheduler was told they are, its timesteps.
    """

    latents: Tensor | None
    timesteps: Tensor | None
    log_probs: Tensor | None
    walked: list[Tensor]
    extra_args: dict[str, Any]
    prompt: Any
    sigmas: list[float]
    times: list[float]


class RolloutDriver:
    """The rollout adapter and a stand-in for what it inherits from.

    The stand-in walks the schedule and calls the scheduler as ``inspect`` says that upstream does, and offers the
    trajectory where upstream does. It is put into the upstream class itself, in this process only.

    Args:
        subject: the package.
        dtype: dtype of the velocity that the scheduler gets.

    Raises:
        NotDrivableError: how upstream loops is not known, or the adapter inherits from no upstream pipeline.
    """

    def __init__(self, subject: Any, dtype: torch.dtype | None = None) -> None:
        self.facts = subject.job["upstream"]
        self._refuse()
        self.subject, self.dtype = subject, dtype
        self._shape = subject.geometry.shape
        upstream = pipelines_above(subject.rollout)
        if not upstream:
            raise NotDrivableError(f"{subject.rollout.__name__} inherits from no pipeline")
        self._stand_in(upstream[0])
        os.environ["LOCAL_RANK"] = "0"
        try:
            self.pipeline = subject.rollout(od_config=self._configuration())
        except Exception as error:
            raise NotDrivableError(
                f"{subject.rollout.__name__}(od_config=…) raises {type(error).__name__}: {error}"
            ) from error

    def _refuse(self) -> None:
        """Raise where upstream's loop cannot be stood in for."""
        if "unknown" in self.facts:
            raise NotDrivableError(self.facts["unknown"])
        upwards = self.facts.get("direction") not in (None, "descending")
        if not self.facts.get("ported") and (upwards or self.facts.get("inline")):
            raise NotDrivableError("the upstream loop updates its samples itself or runs upwards; see level rollout")

    def _configuration(self) -> Any:
        # Where the adapter reads the configuration it finds the one that training has here.
        model = tempfile.mkdtemp() if self.facts.get("noise_rule") else ""
        if model:
            self.subject.config.save_pretrained(model)
        return SimpleNamespace(model=model, dtype=torch.float32, revision=None)

    def velocity(self, sample: Tensor, sigma: float) -> Tensor:
        """Velocity of a sample at a noise level that the rollout steps with."""
        return velocity_of(sample)

    def points(self, steps: int) -> int:
        """Points of upstream's schedule when ``steps`` are asked for."""
        return steps + (1 if self.facts["steps"] == "n" else 0)

    def _stand_in(self, upstream: Any) -> None:
        facts, driver = self.facts, self

        def without_model(pipeline: Any, *, od_config: Any = None, prefix: str = "", **_: Any) -> None:
            nn.Module.__init__(pipeline)
            pipeline.od_config, pipeline.prefix = od_config, prefix
            pipeline.device = torch.device("cpu")
            pipeline.embed_tokens = nn.Identity()
            if facts.get("prompt"):
                pipeline.tokenizer = tokenizer_of(driver.subject)[0]
            setattr(pipeline, facts["scheduler_attribute"], None)
            parent: nn.Module = pipeline
            for name in (facts.get("input_module") or "").split("."):
                if name:
                    parent.add_module(name, nn.Module())
                    parent = getattr(parent, name)
            if facts.get("kwargs_attribute"):
                setattr(pipeline, facts["kwargs_attribute"], {})

        upstream.__init__ = without_model
        upstream.forward = lambda pipeline, request, *args, **kwargs: driver._loop(pipeline, request)
        if (facts.get("ported") or {}).get("method") == "forward":
            # The adapter has taken the whole of upstream's forward over, under a name of its own.
            self.subject.rollout._recorded_forward = upstream.forward

    def _loop(self, pipeline: Any, request: Any) -> Any:
        facts, params = self.facts, request.sampling_params
        self._embed(pipeline, request.prompts[0])
        points = self.points(int(params.num_inference_steps))
        # In float32, as upstream computes it: training looks noise levels up by their bits.
        levels = self.levels(points)
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
            positional, named = self._arguments(levels, i, sample)
            out = scheduler.step(*positional, **named, **extra)
            sample = out.prev_sample / self.scale
            walked.append(sample.clone())
            taken.append(levels[i])
            if getattr(out, "log_prob", None) is not None:
                log_probs.append(out.log_prob)
        # Upstream reads a scale that the sampling type declares from there, whatever the extra arguments say.
        declared = {name: getattr(params, name, None) for name in facts.get("declared") or ()}
        settings = {**copy.deepcopy(params.extra_args), **declared}
        self._seen = (walked, settings, copy.deepcopy(request.prompts[0]), sigmas[:-1], sigmas[:-1])
        return self._output(walked, taken, log_probs, params.return_trajectory_latents)

    def _embed(self, pipeline: Any, prompt: Any) -> None:
        """Embed a request's text, encoded as upstream does it, by the module that its prompts enter by."""
        if not self.facts.get("prompt") or not isinstance(prompt, dict):
            return
        tokenizer, begin, end, key = tokenizer_of(self.subject)
        around = self.facts["prompt"].get("around_request")
        if around is not None:  # the text between the ends has its own texts around it already
            begin, end = map(tokenizer.encode, around)
        if isinstance(prompt.get(key), str):
            pipeline.embed_tokens(torch.tensor([*begin, *tokenizer.encode(prompt[key]), *end]))

    def levels(self, points: int) -> Tensor:
        """Noise levels that upstream walks, in float32, as it computes them."""
        if points < 2:
            return torch.zeros(0)
        if self.facts.get("kind") == "truncated":
            return torch.tensor(self.exact_levels(points), dtype=torch.float32)
        times = (
            1 - torch.linspace(0, 1, points) if self.facts.get("kind") == "ascending" else torch.linspace(1, 0, points)
        )
        shifted: Tensor = self.facts["shift"] * times / (1 + (self.facts["shift"] - 1) * times)
        return shifted

    def exact_levels(self, points: int) -> list[float]:
        """The same in float64, from the formula."""
        facts = self.facts
        if facts.get("kind") == "truncated":
            return truncated_sigmas(points, facts["shift"], facts["parts"], facts["start_level"])
        return shifted_sigmas(points, facts["shift"])

    @property
    def scale(self) -> float:
        """Standard deviation of upstream's initial noise; what training sees is divided by it."""
        rule = self.facts.get("noise_rule")
        if rule is None:
            return float(self.facts.get("noise_scale") or 1.0)
        config, scale = self.subject.config, float(self.subject.config.noise_scale)
        if config.noise_mode in rule["following"]:
            scale *= math.sqrt(self._shape[0] / config.noise_base_tokens)
        if config.noise_mode == rule["rooted"]:
            scale = math.sqrt(scale)
        return min(scale, float(config.noise_limit))

    own_seeds = 0
    _seen: tuple[Any, ...] = ([], {}, None, [], [])

    def _arguments(self, levels: Tensor, i: int, sample: Tensor) -> tuple[list[Any], dict[str, Any]]:
        """What upstream gives its scheduler for a step, by position and by keyword."""
        velocity = velocity_of(sample) * (self.facts.get("output_sign") or 1) * self.scale
        told = levels[i].clamp(max=self.facts.get("highest_level") or 1.0)
        forms = {"1 - sigma": 1 - told, "1000 sigma": told * (self.facts.get("parts") or 1000)}
        time = forms.get(self.facts.get("time") or "", told)
        values = {
            "model_output": velocity if self.dtype is None else velocity.to(self.dtype),
            "timestep": time,
            "sigma": time,
            "sample": sample * self.scale,
            "dt": levels[i] - levels[i + 1],
            "generator": None,
        }
        unknown = [name for name in self.facts["arguments"] if name not in values]
        if unknown:
            raise NotDrivableError(f"what upstream passes to the scheduler as {unknown[0]!r} is not known")
        given = [values[name] for name in self.facts["arguments"]]
        by_keyword = self.facts.get("by_keyword") or [False] * len(given)
        named = zip(self.facts["parameters"], given, by_keyword, strict=True)
        positional = [value for value, keyword in zip(given, by_keyword, strict=True) if not keyword]
        return positional, {name: value for name, value, keyword in named if keyword}

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
            height=image.height,
            width=image.width,
            num_inference_steps=steps,
            seed=seed,
            max_sequence_length=ROOM,
            extra_args=extra_args,
        )
        kind, request_id = import_module("vllm_omni.diffusion.request").OmniDiffusionRequest, uuid4().hex
        try:
            batch = import_module("vllm_omni.diffusion.worker.request_batch").DiffusionRequestBatch
        except ModuleNotFoundError:
            return kind(prompts=[prompt], sampling_params=params, request_id=request_id)
        return batch([kind(prompt=prompt, sampling_params=params, request_id=request_id)])

    def roll_out(
        self, *, steps: int = 6, seed: int = 3, prompt: dict[str, Any] | None = None, **extra_args: Any
    ) -> Rolled:
        """Run one request.

        Args:
            steps: steps asked for.
            seed: of the request.
            prompt: the prompt; a text and its ids unless given.
            extra_args: over a noise level of 0.7, ``sde``, log-probs wanted, the first training step; without a step
                where ``global_steps`` is None.
        """
        prompt = prompt or {"prompt": "a sign", "prompt_token_ids": [1, 2, 3]}
        settings = {"noise_level": 0.7, "sde_type": "sde", "logprobs": True, "global_steps": 1, **extra_args}
        settings = {name: value for name, value in settings.items() if name != "global_steps" or value is not None}
        output = self._run(self.request(steps=steps, seed=seed, prompt=prompt, **settings))
        custom = getattr(output, "custom_output", None) or {}
        latents, timesteps, log_probs = (
            custom.get(f"all_{name}") if (value := getattr(output, f"trajectory_{name}", None)) is None else value
            for name in TRAJECTORY
        )
        return Rolled(latents, timesteps, log_probs, *self._seen)

    def _run(self, request: Any) -> Any:
        try:
            return self.pipeline(request)
        except AttributeError as error:
            if self.subject.spec or "'NoneType' object" not in str(error):
                raise
            # What nobody has made here, a scheduler say, the real pipeline has.
            raise NotDrivableError(
                f"the rollout adapter needs its real pipeline ({error}); see level rollout"
            ) from error


class OwnLoopError(NotDrivableError):
    """The package has its own loop, so upstream's pipeline says nothing about its rollout."""


def drive(subject: Any, dtype: torch.dtype | None = None) -> RolloutDriver:
    """A driver of the rollout adapter.

    Args:
        subject: the package.
        dtype: dtype in which the model answers.

    Raises:
        NotDrivableError: the adapter cannot be driven.
    """
    require_inherited_loop(subject)
    return RolloutDriver(subject, dtype)


def require_inherited_loop(subject: Any) -> None:
    """Raise where the package's classes step the scheduler themselves, or never call the inherited ``forward``.

    A spec says how its package's upstream loops.

    Raises:
        NotDrivableError: the loop is the package's own.
    """
    if subject.spec:
        return
    package = f"{subject.name}."
    kinds = [kind for kind in subject.rollout.__mro__ if f"{kind.__module__}.".startswith(package)]
    own = [value for kind in kinds for value in vars(kind).values()]
    codes = [code for value in own if inspect.isfunction(value) for code in _codes(inspect.unwrap(value).__code__)]
    inherits = not any("forward" in vars(kind) for kind in kinds) or any("forward" in code.co_names for code in codes)
    if not inherits or any("step" in code.co_names for code in codes):
        why = (subject.job.get("rolled") or {}).get("unknown", "--level rollout runs it")
        raise OwnLoopError(f"the rollout adapter has a loop of its own; {why}")


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
