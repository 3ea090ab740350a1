"""Of packages with a formula of guidance and a schedule of their own: both agree with a tape of their pipeline."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scaffold.attributes import with_attribute
from scaffold.files.resources import runtime_root
from scaffold.verify.rollout.check import VELOCITY, Check, Measurement, NotApplicable, control

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest
    from scaffold.verify.rollout.engine_side.trajectory import Trajectory

ORDER = 27
DTYPE = "float32"
LEVELS = Check(
    "rollout-composed-levels", "The pipeline steps through the noise levels that training scores", 1e-5, "absolute"
)
FORMULA = Check(
    "rollout-composed-formula",
    "What the pipeline makes of its branches, played from a tape on other predictions, is what training makes of them",
    VELOCITY,
    "relative",
)
GRADIENT = Check(
    "rollout-composed-gradient",
    "and so are the gradients that reach the branches through it",
    10 * VELOCITY,
    "relative",
)
MISTAKE = control("composed-formula", "a scale that is less by one, and branches that are exchanged")
CHECKS = (LEVELS, FORMULA, GRADIENT, MISTAKE)

# How far a prediction of the rollout may lie from the velocity of training that it is taken for.
FOUND = 1e-3


@dataclass
class _Step:
    """A step of the pipeline: training's level, how far the pipeline's lies from it, a tape of what it steps with."""

    level: float
    apart: float
    latents: Any
    program: Any
    constants: Any
    predictions: dict[tuple[int, int], Any]
    scale: float


@dataclass
class _Combined:
    """What training was given to combine at one step."""

    rule: Any
    branches: list[Any]
    sigma: Any
    guidance: dict[str, Any]

    def of(self, branches: list[Any], **changed: Any) -> Any:
        """The guided velocity of other branches, under changed settings."""
        image_free = branches[2] if len(branches) > 2 else None
        return self.rule.combine(branches[0], branches[1], self.sigma, {**self.guidance, **changed}, image_free)


@dataclass
class _Apart:
    """The largest differences of all steps."""

    formula: float = 0.0
    gradient: float = 0.0
    mistake: float = float("inf")
    branches: set[int] = field(default_factory=set)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Roll out under a tape, recompute that, and play the tape on changed predictions beside training's own formula."""
    rule = getattr(getattr(bench.training.adapter, "common", None), "GUIDANCE", None)
    if rule is None or not hasattr(getattr(bench.engine.pipeline, "sde_scheduler", None), "taken"):
        raise NotApplicable("the package has no formula of guidance and schedule of the tool's own")
    with _taped(bench) as steps:
        (sample,) = bench.roll_out(bench.recipe, bench.texts[:1])
    levels = max(step.apart for step in steps)
    yield Measurement(LEVELS.id, levels, f"largest of {len(steps)} steps, as the pipeline tells them", floor=0.0)
    combined = _combined(bench, sample)
    kept = [step for step in steps if any(abs(step.level - float(t)) < 1e-6 for t in sample.timesteps)]
    if not combined or len(combined) != len(kept):
        raise NotApplicable(f"training combined branches in {len(combined)} of {len(kept)} recorded steps")
    apart = _Apart()
    for step, own in zip(kept, combined, strict=True):
        _compare(step, own, apart)
    told = f"{' and '.join(map(str, sorted(apart.branches)))} branches in {len(kept)} steps"
    yield Measurement(FORMULA.id, apart.formula, told, floor=2**-23)
    yield Measurement(GRADIENT.id, apart.gradient, told, floor=2**-23)
    yield Measurement(MISTAKE.id, VELOCITY / max(apart.mistake, 1e-30), f"the smaller effect is {apart.mistake:.2g}")


def _tape(name: str) -> Any:
    """A module of the tool's own runtime: a composed package does not reach those of the tape."""
    whole = "flow_grpo_runtime_of_the_tool"
    if whole not in sys.modules:
        folder = runtime_root()
        found = importlib.util.spec_from_file_location(
            whole, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert found is not None
        assert found.loader is not None
        sys.modules[whole] = importlib.util.module_from_spec(found)
        found.loader.exec_module(sys.modules[whole])
    return importlib.import_module(f"{whole}.{name}")


@contextlib.contextmanager
def _taped(bench: EngineUnderTest) -> Iterator[list[_Step]]:
    """Follow, in each step of the pipeline, what layers return that are as wide as the latents."""
    import torch

    width, pipeline = bench.first[0].latents.shape[-1], bench.engine.pipeline
    kind: Any = next(kind for kind in type(pipeline.sde_scheduler).__mro__ if "taken" in vars(kind))
    tape, taken = _tape("tape").Tape(), kind.taken
    steps: list[_Step] = []
    predictions: dict[tuple[int, int], Any] = {}

    def before(module: Any, given: Any) -> None:
        tape.pause()

    def after(module: Any, given: Any, output: Any) -> None:
        found = output[0] if isinstance(output, tuple) else output
        if isinstance(found, torch.Tensor) and found.is_floating_point() and found.shape[-1] == width:
            predictions[len(predictions), 0] = found.detach().clone()
            tape.source(found, len(predictions) - 1, 0)
        if predictions:
            tape.resume()

    def stepping(self: Any, velocity: Any, time: Any, sample: Any, generator: Any = None) -> Any:
        tape.pause()
        index, told = len(self._sigmas), float(torch.as_tensor(time)) / self.parts
        program, constants = tape.cut(velocity)
        level = self.inner.timesteps[index]
        own = {place: predictions[place] for place in _tape("tape_play").sources(program)}
        scale = float(self.scale_of(sample.shape[-2]))
        latents = sample.detach().float().clone()
        apart = abs((1 - told if self.ascending else told) - float(level.clamp(max=self.highest)))
        steps.append(_Step(float(level), apart, latents, program, constants, own, scale))
        predictions.clear()
        tape.clear()
        return taken(self, velocity, time, sample, generator)

    leaves = [module for module in pipeline.modules() if not any(True for _ in module.children())]
    hooks = [leaf.register_forward_pre_hook(before) for leaf in leaves]
    hooks += [leaf.register_forward_hook(after) for leaf in leaves]
    try:
        with with_attribute(kind, "taken", stepping):
            yield steps
    finally:
        tape.close()
        for hook in hooks:
            hook.remove()


def _combined(bench: EngineUnderTest, sample: Trajectory) -> list[_Combined]:
    """What training combines while it recomputes a rollout, step by step."""
    found: list[_Combined] = []
    kind = type(bench.training.adapter.common.GUIDANCE)
    own: Any = kind.combine

    def combine(
        rule: Any, conditional: Any, unconditional: Any, sigma: Any, guidance: Any, image_free: Any = None
    ) -> Any:
        branches = [conditional, unconditional, *([] if image_free is None else [image_free])]
        found.append(_Combined(rule, [b.detach().float().cpu() for b in branches], sigma.cpu(), dict(guidance)))
        return own(rule, conditional, unconditional, sigma, guidance, image_free)

    with with_attribute(kind, "combine", combine):
        bench.compare([sample], bench.recipe)
    return found


def _compare(step: _Step, own: _Combined, apart: _Apart) -> None:
    """Compare both formulas at predictions of the rollout that are changed, and their gradients."""
    import torch

    from scaffold.verify.formulas import relative

    shape = own.branches[0].shape
    latents = (step.latents / step.scale).reshape(shape)
    places = [_place(step, latents, branch) for branch in own.branches]
    generator = torch.Generator().manual_seed(0)
    changed = {}
    for place, tensor in step.predictions.items():
        noise = torch.randn(tensor.shape, generator=generator)
        changed[place] = (tensor.float() + 0.3 * tensor.float().std() * noise).requires_grad_()

    def branches(order: list[int]) -> list[Any]:
        found = []
        for leaf, first, of_prediction, of_latents in (places[i] for i in order):
            rows = changed[leaf].reshape(-1, shape[-1])[first : first + shape[-2]].reshape(shape)
            found.append(of_prediction * rows + of_latents * latents)
        return found

    play = _tape("tape_play").play
    with torch.inference_mode(False), torch.enable_grad():
        theirs = play(step.program, step.constants, changed, step.latents).float().reshape(shape) / step.scale
        count = list(range(len(places)))
        ours = own.of(branches(count))
        apart.formula = max(apart.formula, relative(ours, theirs))
        weights = torch.randn(shape, generator=generator)
        gradients = [
            torch.autograd.grad((made * weights).sum(), list(changed.values()), retain_graph=True)
            for made in (ours, theirs)
        ]
        for mine, their in zip(*gradients, strict=True):
            apart.gradient = max(apart.gradient, relative(mine, their))
        name = own.rule.text_scale
        lower = own.of(branches(count), **{name: own.guidance[name] - 1.0})
        exchanged = own.of(branches([1, 0, *count[2:]]))
        effects = [relative(made, theirs) for made in (lower, exchanged)]
    if relative(ours, branches([0])[0]) > FOUND:  # guidance acts at this level
        apart.mistake = min(apart.mistake, *effects)
    apart.branches.add(len(places))


def _place(step: _Step, latents: Any, branch: Any) -> tuple[tuple[int, int], int, float, float]:
    """Where a branch of training stands among the rollout's predictions, and how its velocity is made of these.

    A velocity is the prediction times a number and the latents times another, whatever the model predicts.

    Raises:
        RuntimeError: no prediction is that branch.
    """
    import torch

    from scaffold.verify.formulas import relative

    best: tuple[float, Any] = (float("inf"), None)
    wanted = branch.reshape(-1, branch.shape[-1])
    for leaf, tensor in step.predictions.items():
        rows = tensor.float().reshape(-1, wanted.shape[-1])
        for first in range(len(rows) - len(wanted) + 1):
            columns = torch.stack([rows[first : first + len(wanted)].flatten(), latents.flatten()], dim=1).double()
            found = torch.linalg.lstsq(columns, wanted.flatten()[:, None].double()).solution
            off = relative((columns @ found)[:, 0], wanted.flatten().double())
            if off < best[0]:
                best = off, (leaf, first, float(found[0]), float(found[1]))
    if not best[0] <= FOUND:
        raise RuntimeError(f"no prediction of the rollout is training's branch: the nearest is {best[0]:.2g} off")
    place: tuple[tuple[int, int], int, float, float] = best[1]
    return place
