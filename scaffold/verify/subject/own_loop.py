"""Drives a rollout adapter that has written the denoising loop itself: its own loop runs, over a stand-in network."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from scaffold.verify.formulas import relative, truncated_sigmas
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.subject.inherited import Inherited
from scaffold.verify.subject.prediction import as_velocity, predicts_clean
from scaffold.verify.subject.rollout import RolloutDriver
from scaffold.verify.subject.stand_in_velocity import velocity_of
from scaffold.verify.subject.subject import Subject

_INSTEAD = "; --level rollout runs it in the real vllm-omni"
# Of a prediction's part in the velocity: what float32 leaves of two or three terms.
_ROUNDING, _HALF_ROUNDING = 1e-4, 0.05
_NOISE = 7919  # initial latents come from a stream that no request's seed starts

Network = Callable[[Tensor, int], Tensor]


class _UpstreamLoopError(BaseException):
    """The adapter calls the loop that it inherits; no ``except Exception`` of the adapter hides it."""


class _WantedError(BaseException):
    """A step gets a sample that the upstream pipeline was to make."""


class OwnLoop(RolloutDriver):
    """The rollout adapter with a stand-in for what it inherits, which is everything but its loop.

    The network predicts ``velocity_of`` the latents it gets: whatever is called of the upstream pipeline with a tensor
    of the latents' shape. The scheduler is the adapter's own, and its steps are looked at.

    Raises:
        NotDrivableError: the loop does not run so.
    """

    def __init__(self, subject: Subject, dtype: torch.dtype | None = None) -> None:
        self._network: Network = lambda sample, call: velocity_of(sample)
        self._latents: str | None = None
        self._asked: list[str] = []
        super().__init__(subject, dtype)
        self._find_latents()
        self.clean = self._predicts_clean()

    # What stands for upstream

    def _refuse(self) -> None:
        """Nothing: how upstream loops does not matter here."""

    def _configuration(self) -> Any:
        return _Configuration(model="", dtype=self.dtype or torch.float32, revision=None, answer=self._answer)

    def _stand_in(self, upstream: Any) -> None:
        driver = self

        def without_model(pipeline: Any, *, od_config: Any = None, prefix: str = "", **_: Any) -> None:
            nn.Module.__init__(pipeline)
            pipeline.od_config, pipeline.prefix = od_config, prefix
            pipeline.device, pipeline.dtype = torch.device("cpu"), driver.dtype or torch.float32

        def lookup(pipeline: Any, name: str) -> Any:
            try:
                return nn.Module.__getattr__(pipeline, name)
            except AttributeError:
                if name.startswith("__"):
                    raise
                return Inherited(name, driver._answer)

        def refused(pipeline: Any, *args: Any, **kwargs: Any) -> Any:
            raise _UpstreamLoopError

        known = {name for kind in nn.Module.__mro__ for name in vars(kind)}
        for kind in upstream.__mro__:
            if kind.__module__.startswith("vllm_omni."):
                for name in vars(kind).keys() - known:
                    if not name.startswith("__"):
                        setattr(upstream, name, Inherited(name, self._answer))
        upstream.__init__, upstream.__getattr__, upstream.forward = without_model, lookup, refused
        for module in list(sys.modules.values()):
            if type(module).__module__.startswith("omni_scaffold_kit") and isinstance(module, ModuleType):
                # A function of an upstream module, which the kit has as a module of its own.
                callable_kind: Any = type(module)
                callable_kind.__call__ = lambda module, *a, **k: Inherited(module.__name__, driver._answer)(*a, **k)

    def _answer(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call or an item of the upstream pipeline is, where it is known."""
        self._asked.append(path)
        if path == self._latents:
            return self._initial()
        shape = self._shape
        for value in _flat((*args, *kwargs.values())):
            if isinstance(value, Tensor) and value.is_floating_point() and value.shape[-len(shape) :] == shape:
                self._calls += 1
                found = self._network(value, self._calls - 1)
                return found.to(value.dtype if self.dtype is None else self.dtype)
        return None

    def _initial(self) -> Tensor:
        generator = torch.Generator().manual_seed(_NOISE + 1_000_003 * self._seed)
        return torch.randn(1, *self._shape, generator=generator)

    # Running

    def request(self, *, steps: int, seed: int, prompt: dict[str, Any], **extra_args: Any) -> Any:
        """As the engine makes it: a setting that sampling parameters have is set there, the others are extra."""
        made = super().request(steps=steps, seed=seed, prompt=prompt)
        params = made.sampling_params
        pipeline = {"true_cfg_scale": 1.0, "guidance_scale": None, "max_sequence_length": 512}
        for name, value in {**pipeline, **extra_args}.items():
            if hasattr(params, name):
                setattr(params, name, value)
            else:
                params.extra_args[name] = value
        self._seed = seed
        return made

    def _run(self, request: Any) -> Any:
        with self._watched():
            output = self.pipeline(request)
        settings = dict(request.sampling_params.extra_args)
        walked = [step.sample for step in self._steps] + [step.following for step in self._steps[-1:]]
        sigmas, times = ([getattr(step, name) for step in self._steps] for name in ("sigma", "time"))
        self._seen = (walked, settings, request.prompts[0], sigmas, times)
        return output

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Write down each step of the scheduler."""
        kind = sys.modules["verl_omni.pipelines.schedulers"].FlowMatchSDEDiscreteScheduler
        original = kind.step
        self._steps: list[Any] = []
        self._calls, before = 0, 0

        def step(scheduler: Any, model_output: Any, timestep: Any, sample: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal before
            if isinstance(sample, Inherited):
                raise _WantedError(sample.path)
            made = original(scheduler, model_output, timestep, sample, *args, **kwargs)
            index = int(scheduler.step_index) - 1
            following = made[0] if isinstance(made, tuple) else made.prev_sample
            sigma, time = float(scheduler.sigmas[index]), float(scheduler.timesteps[index])
            self._steps.append(
                SimpleNamespace(
                    sample=sample.clone(),
                    following=following.clone(),
                    velocity=model_output.clone(),
                    sigma=sigma,
                    time=time,
                    calls=self._calls - before,
                )
            )
            before = self._calls
            return made

        with mock.patch.object(kind, "step", step):
            yield

    # What has to be found out

    def _find_latents(self) -> None:
        """Find which part of the upstream pipeline makes the initial latents, if any does.

        Raises:
            NotDrivableError: the loop does not run whichever it is.
        """
        waiting: list[Any] = [None]
        tried: set[str | None] = set()
        reason = ""
        while waiting and len(tried) < 40:
            self._latents = waiting.pop(0)
            if self._latents in tried:
                continue
            tried.add(self._latents)
            self._asked.clear()
            try:
                self.roll_out()
                if self._steps and any(step.calls for step in self._steps):
                    return
                told = "its steps are not those of FlowMatchSDEDiscreteScheduler" if not self._steps else ""
                told = told or "nothing of the upstream pipeline gets the latents"
            except _UpstreamLoopError:
                raise NotDrivableError(self.facts.get("unknown") or "the adapter calls the loop of upstream") from None
            except _WantedError as wanted:
                path = str(wanted)
                told = f"what of {path} are the latents is not known"
                ends = [i + 1 for i, letter in enumerate(path) if letter in ")]"]
                waiting[:0] = [path[:end] for end in ends]
            except NotDrivableError:
                raise
            except Exception as error:
                told = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                if self._latents is None:
                    waiting += [path for path in dict.fromkeys(self._asked) if path[-1] in ")]"]
            reason = reason or told
        raise NotDrivableError(f"the adapter's own loop does not run over a stand-in ({reason}){_INSTEAD}")

    def _predicts_clean(self) -> bool:
        """Whether the network is taken to predict the clean sample.

        Raises:
            NotDrivableError: the velocity follows from a prediction in another way than in training.
        """
        self.roll_out()
        step, clean = self._steps[len(self._steps) // 2], predicts_clean(self.subject)
        expected = as_velocity(velocity_of(step.sample), step.sample, step.sigma, clean)
        far = relative(step.velocity.double().view(1, *self._shape), expected)
        if not far <= (_ROUNDING if self.dtype is None else _HALF_ROUNDING):
            raise NotDrivableError(
                "the rollout makes another velocity than training of what the network predicts, or has another network"
                + _INSTEAD
            )
        return clean

    def velocity(self, sample: Tensor, sigma: float) -> Tensor:
        return as_velocity(velocity_of(sample), sample, sigma, self.clean)

    def schedule_of_upstream(self, points: int) -> list[float] | None:
        """Noise levels of the pipeline's own loop; None where they are not known."""
        facts = self.facts
        if facts.get("kind") != "truncated" or None in (
            facts.get("parts"),
            facts.get("start_level"),
            facts.get("shift"),
        ):
            return None
        return truncated_sigmas(points, facts["shift"], facts["parts"], facts["start_level"])

    def guidance_scale(self, **settings: Any) -> float:
        """The scale that the rollout guides with: the part of the larger of two predictions in the velocity.

        Raises:
            NotDrivableError: the velocity is no sum of a step's two predictions.
        """
        given: dict[int, Tensor] = {}

        def network(sample: Tensor, call: int) -> Tensor:
            drawn = torch.randn(sample.shape, generator=torch.Generator().manual_seed(call))
            given[call] = drawn
            return drawn

        with mock.patch.object(self, "_network", network):
            self.roll_out(**settings)
        first, calls = 0, self._steps
        for step in calls[: len(calls) // 2]:
            first += step.calls
        step = calls[len(calls) // 2]
        predicted = [row for call in range(first, first + step.calls) for row in given[call].view(-1, *self._shape)]
        if len(predicted) == 1:
            return 1.0
        if len(predicted) != 2:
            raise NotDrivableError(f"a step of the rollout has {len(predicted)} predictions, not one or two")
        columns = torch.stack([value.flatten().double() for value in (step.sample, *predicted)], dim=1)
        wanted = step.velocity.flatten().double()[:, None]
        weights = torch.linalg.lstsq(columns, wanted).solution
        if relative(columns @ weights, wanted) > _ROUNDING:
            raise NotDrivableError("the rollout's velocity is no weighted sum of its two predictions")
        share = float(weights[1] / (weights[1] + weights[2]))
        return float(f"{max(share, 1 - share):.6g}")


class _Configuration(SimpleNamespace):
    """The engine's configuration: what is not set is one of upstream's."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inherited(name, self.__dict__["answer"])


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, dict):
            yield from _flat(value.values())
        elif isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value
