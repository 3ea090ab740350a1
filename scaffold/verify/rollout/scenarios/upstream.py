"""What both sides of a package may do wrongly alike: its noise levels and its picture, against upstream's own loop."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from scaffold.attributes import with_attribute
from scaffold.verify.rollout.check import Check, Measurement, NotApplicable

if TYPE_CHECKING:
    import torch

    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest
    from scaffold.verify.rollout.engine_side.recorder import StepTaken

ORDER = 48
DTYPE = "float32"
# Relative; float32 gives 1e-7, a shift of 3 that is applied twice 1e-1.
LEVELS = Check(
    "rollout-upstream-levels",
    "The denoiser is told the noise levels that it is told by upstream's own loop, for the same request",
    1e-5,
    "relative",
)
# Of what other latents change in the picture: float32 gives 1e-5, bytes 3e-2, latents that are not denormalised 1.
PICTURE = Check(
    "rollout-upstream-decode",
    "The rollout's last latents become the picture that upstream's own loop makes of them",
    5e-2,
    "share of other latents' effect",
)
FAINT = 30  # roundings that other latents have to move a picture by
CHECKS = (LEVELS, PICTURE)
# Arguments by which a denoiser, or a part of it, is told the level.
_TIMES = re.compile(r"t|times?|timesteps?|sigmas?|noise_levels?")


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Send one request through the adapter, and through the pipeline class that it extends, on the same modules.

    Raises:
        NotApplicable: the package runs upstream's loop itself, or upstream's does not take the request.
    """
    from scaffold.verify.rollout.engine_side import recorder

    if bench.task.facts.get("ported"):
        raise NotApplicable("the rollout runs upstream's own loop")
    pipeline, sampling = bench.engine.pipeline, bench.recipe.sampling(7)
    kind = bench.adapters.upstream
    with _made(type(pipeline), bench.task.package) as schedulers:
        bench.engine.load()
    pipeline = bench.engine.pipeline
    bench.engine.negative = bench.prompts.negative(bench.texts[0])
    with _decoding(pipeline):
        with recorder.steps() as taken, _told(pipeline) as own:
            given = bench.engine.answer(bench.prompts.chat(bench.texts[0]), sampling)
        with _as_upstream(pipeline, kind, schedulers), _stepped(pipeline, schedulers) as walk:
            try:
                with _told(pipeline) as theirs:
                    plain = bench.engine.answer([], sampling, text=bench.texts[0])
                if getattr(plain, "error", None):
                    raise RuntimeError(plain.error)
            except NotApplicable:
                raise
            except Exception as error:
                told = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                raise NotApplicable(f"{kind.__name__} does not take the request by itself: {told}") from None
            yield _levels(own, theirs, kind.__name__)
            yield _picture(bench, kind.__name__, given, plain, taken, walk)


def _levels(own: Mapping[str, list[float]], theirs: Mapping[str, list[float]], kind: str) -> Measurement:
    """Compare what the denoiser was told by both loops."""
    both = [name for name in theirs if len(set(theirs[name])) > 1 and own.get(name)]
    if not both:
        return Measurement(LEVELS.id, None, f"no module is told a level both here and in {kind}", skipped=True)
    name = min(both, key=lambda one: (one.count("."), one))
    here, there = own[name], theirs[name]
    shown = f"{name} is told {_shown(here)}, in {kind} {_shown(there)}"
    if len(here) != len(there):
        return Measurement(LEVELS.id, None, f"{len(here)} levels in place of {len(there)}: {shown}")
    apart = max(abs(one - other) for one, other in zip(here, there, strict=True)) / max(map(abs, there))
    return Measurement(LEVELS.id, apart, shown if apart > (LEVELS.limit or 0) else f"{len(here)} levels of {name}")


def _shown(levels: list[float]) -> str:
    more = ", …" if len(levels) > 6 else ""
    return f"{', '.join(f'{level:.4g}' for level in levels[:6])}{more}"


def _picture(
    bench: EngineUnderTest, kind: str, given: Any, plain: Any, taken: list[StepTaken], walk: _Walk
) -> Measurement:
    """Let upstream's loop end with the rollout's last latents, and compare what both make of them."""

    def skipped(reason: str) -> Measurement:
        return Measurement(PICTURE.id, None, reason, skipped=True)

    if not walk.shapes:
        return skipped("upstream's loop has no scheduler whose last step could give the rollout's latents")
    if not taken:
        return skipped("no step of verl-omni's scheduler was seen")
    last, shape = taken[-1].result, walk.shapes[-1]
    if [size for size in last.shape if size > 1] != [size for size in shape if size > 1]:
        return skipped(f"latents of shape {list(last.shape)} are not in the form of upstream's {list(shape)}")
    walk.end(last.reshape(shape))
    ended = bench.engine.answer([], bench.recipe.sampling(7), text=bench.texts[0])
    seen: list[tuple[float, float, float]] = []  # share, what other latents move, rounding, of each form
    forms: tuple[Callable[[Any], Any], ...] = (lambda output: output.output, bench.engine.finished)
    for form in forms:
        with suppress(Exception):
            (here, least), (there, _), (other, _) = (_numbers(form(output)) for output in (given, ended, plain))
            if here.shape == there.shape == other.shape:
                apart, moves = (float((one - there).norm() / there.norm()) for one in (here, other))
                seen.append((apart / max(moves, 1e-12), moves, least))
    if not seen:
        return skipped("what the rollout returns is not in the form of upstream's picture")
    clear = [one for one in seen if one[1] >= FAINT * one[2]]
    if not clear:
        return skipped(f"other latents move the tiny autoencoder's picture by {max(one[1] for one in seen):.1g} alone")
    share, moves, least = min(clear)
    told = "upstream's picture" if share <= (PICTURE.limit or 0) else f"a picture that {kind}'s decode does not make"
    return Measurement(PICTURE.id, share, f"{told}; other latents move it by {moves:.1g}", floor=least / moves)


def _numbers(result: Any) -> tuple[torch.Tensor, float]:
    """The media of a result, whatever form they have, as one row; and how much of it rounding is."""
    import numpy as np
    import torch

    if isinstance(result, Mapping):
        fields = result["payload"] if isinstance(result.get("payload"), Mapping) else result
        result = next(value for value in fields.values() if value is not None)
    if isinstance(result, list | tuple):
        rows, least = zip(*map(_numbers, result), strict=True)
        return torch.cat(rows), max(least)
    array = result if isinstance(result, torch.Tensor) else torch.as_tensor(np.asarray(result))
    return array.detach().double().flatten(), 1e-6 if array.is_floating_point() else 1 / 255


@contextmanager
def _made(adapter: type, package: str) -> Iterator[dict[str, Any]]:
    """Yield a dictionary that fills with the schedulers that code other than the package's gives to the adapter."""
    found: dict[str, Any] = {}
    own = (package, "verl_omni.", "flow_grpo_runtime")
    before: Any = adapter.__setattr__

    def noting(self: Any, name: str, value: Any) -> None:
        if _is_scheduler(value) and not str(sys._getframe(1).f_globals.get("__name__")).startswith(own):
            found[name] = value
        before(self, name, value)

    with with_attribute(adapter, "__setattr__", noting):
        yield found


def _is_scheduler(value: Any) -> bool:
    return not isinstance(value, type) and all(callable(getattr(value, n, None)) for n in ("step", "set_timesteps"))


@contextmanager
def _as_upstream(pipeline: Any, kind: type, schedulers: Mapping[str, Any]) -> Iterator[None]:
    """Inside the block the pipeline is one of the class that the adapter extends, with the schedulers of that."""
    adapter = type(pipeline)
    with ExitStack() as stack:
        for name, scheduler in schedulers.items():
            stack.enter_context(with_attribute(pipeline, name, scheduler, create=True))
        pipeline.__class__ = kind
        stack.callback(setattr, pipeline, "__class__", adapter)
        yield


@contextmanager
def _told(pipeline: Any) -> Iterator[dict[str, list[float]]]:
    """Yield a dictionary that fills, by module, with the levels that it is told, each once where they repeat."""
    import torch

    found: dict[str, list[float]] = {}
    hooks = []
    for name, module in pipeline.named_modules():
        with suppress(TypeError, ValueError):
            signature = inspect.signature(module.forward)
            times = [one for one in signature.parameters if _TIMES.fullmatch(one)]
            if not name or not times:
                continue

            def note(
                _: Any, args: Any, kwargs: Any, *, name: str = name, form: Any = signature, time: str = times[0]
            ) -> None:
                with suppress(TypeError):
                    value = form.bind(*args, **kwargs).arguments.get(time)
                    if isinstance(value, torch.Tensor | float | int) and torch.as_tensor(value).numel():
                        level = float(torch.as_tensor(value).detach().double().max())
                        row = found.setdefault(name, [])
                        if not row or row[-1] != level:
                            row.append(level)

            hooks.append(module.register_forward_pre_hook(note, with_kwargs=True))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


@dataclass
class _Walk:
    """Steps of upstream's schedulers: shapes of their results, and what the last of a further walk is to give."""

    shapes: list[tuple[int, ...]] = field(default_factory=list)
    _last: Any = None
    _count: int = 0

    def end(self, latents: torch.Tensor) -> None:
        """Walk once more; the last step gives these latents."""
        self._last, self._count = latents, 0

    def step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """One step; a tuple, an output class or a tensor holds its result."""
        import torch

        result = original(*args, **kwargs)
        plain = isinstance(result, torch.Tensor)
        sample = result if plain else result[0]
        if self._last is None:
            self.shapes.append(tuple(sample.shape))
            return result
        self._count += 1
        if self._count < len(self.shapes):
            return result
        sample = self._last.to(sample)
        if plain:
            return sample
        if isinstance(result, tuple):
            return (sample, *result[1:])
        result.prev_sample = sample
        return result


@contextmanager
def _stepped(pipeline: Any, schedulers: Mapping[str, Any]) -> Iterator[_Walk]:
    """Inside the block yield the steps that the schedulers take; upstream's loop may ask no other one.

    Raises:
        NotApplicable: it asks one that the package alone makes.
    """
    walk = _Walk()

    def refuse(name: str) -> Any:
        raise NotApplicable(f"the package alone makes the pipeline's {name}, so that upstream's is not known")

    with ExitStack() as stack:
        for name, scheduler in [pair for pair in vars(pipeline).items() if _is_scheduler(pair[1])]:
            if name in schedulers:
                step = partial(walk.step, scheduler.step)
                stack.enter_context(with_attribute(scheduler, "step", step))
            else:
                for method in ("step", "set_timesteps"):
                    refused = partial(lambda name, *_, **__: refuse(name), name)
                    stack.enter_context(with_attribute(scheduler, method, refused))
        yield walk


@contextmanager
def _decoding(pipeline: Any) -> Iterator[None]:
    """Inside the block a released autoencoder decodes what it is given, which it does once a shape elsewhere."""
    autoencoder = getattr(pipeline, "vae", None)
    drawn = vars(autoencoder).pop("decode", None) if autoencoder is not None else None
    try:
        yield
    finally:
        if drawn is not None:
            autoencoder.decode = drawn  # type: ignore[union-attr]
