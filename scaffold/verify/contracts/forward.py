"""What ``forward`` takes and returns: every input counts, and nothing else does."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from scaffold.attributes import with_attribute
from scaffold.verify.formulas import difference, relative, same
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.discovery import require_own_module
from scaffold.verify.subject.source_words import BEYOND
from scaffold.verify.subject.subject import PROMPTS

# A change that is meant to be seen gives 1e-2 and more; 1e-5 is what rounding could give.
LEAST = 1e-5
LENGTHS = "reference_lengths"


class Forward:
    """``forward`` returns one finite velocity for each latent."""

    ID = "forward"
    TITLE = "forward returns a 1-tuple of finite velocities, shaped like the latents, for both branches"
    PITFALLS = (39,)

    @staticmethod
    def run(subject: Any) -> Measured:
        """Call the module with both branches of a ragged batch; a module that never runs fails here, and only here.

        A missing library, or inputs that nobody has declared, are not a fault of the package.
        """
        require_own_module(subject.training)
        try:
            module = subject.new_module()
            shape = subject.geometry.shape
            pair = subject.inputs(module)
        except NotDrivableError as reason:
            if BEYOND in str(reason) or not (subject.spec or subject.table.place):
                raise
            return Measured("", [str(reason)])
        problems = []
        for branch, inputs in zip(("conditional", "unconditional"), pair, strict=True):
            if inputs is None:
                continue
            with torch.no_grad():
                output = module(**inputs)
            if not isinstance(output, tuple) or len(output) != 1:
                problems.append(f"{branch}: forward returns {_kind(output)}, the engine takes the first of a 1-tuple")
            velocity = output if isinstance(output, torch.Tensor) else output[0]
            if velocity.shape[1:] != shape:
                problems.append(f"{branch}: the velocity has shape {tuple(velocity.shape)} for latents (B, {shape})")
            if not velocity.isfinite().all():
                problems.append(f"{branch}: the velocity holds numbers that are not finite")
            elif not velocity.abs().max() > 0:
                problems.append(f"{branch}: the velocity is zero everywhere")
        return Measured(f"(velocity,) with velocity (B, {', '.join(map(str, shape))})", problems)

    @staticmethod
    def run_recorded(subject: Any) -> Measured:
        """As for every package; where nothing could be recorded there is nothing to give to it."""
        subject.recording  # noqa: B018
        return Forward.run(subject)


def _kind(output: Any) -> str:
    return f"a tuple of {len(output)}" if isinstance(output, tuple) else type(output).__name__


class InputKeys:
    """What ``prepare_model_inputs`` builds is what ``forward`` takes."""

    ID = "input-keys"
    TITLE = "the keys of prepare_model_inputs are the arguments of forward"
    PITFALLS = (27,)

    @staticmethod
    def run(subject: Any) -> Measured:
        """Compare the keys of both branches with the signature; what hides behind ``**kwargs`` cannot be compared."""
        module = subject.new_module()
        made, error = None, None
        for image in subject.images(module):
            try:
                with with_attribute(subject, "_image", image):
                    settings = subject.settings()
                    trajectory = subject.trajectory(len(PROMPTS), settings)
                    made = subject.prepared(module, settings, trajectory, subject.micro_batch(PROMPTS))
                break
            except Exception as problem:
                error = error or problem
        if made is None:
            raise error or RuntimeError("prepare_model_inputs took none of the image sizes tried")
        if not isinstance(made, tuple) or len(made) != 2:
            return Measured("", [f"prepare_model_inputs returns {type(made).__name__}, not a pair"])
        parameters = inspect.signature(module.forward).parameters
        named = {name for name, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        required = {name for name in named if parameters[name].default is inspect.Parameter.empty}
        problems = []
        for branch, inputs in zip(("conditional", "unconditional"), made, strict=True):
            if inputs is None:
                continue
            if missing := sorted(required - inputs.keys()):
                problems.append(f"the {branch} inputs lack {', '.join(missing)}, which forward needs")
            if not takes_more and (strange := sorted(inputs.keys() - named)):
                problems.append(f"the {branch} inputs hold {', '.join(strange)}, which forward does not take")
        more = "; forward takes **kwargs, so surplus keys would not show" if takes_more else ""
        return Measured(f"{', '.join(sorted(made[0]))}{more}", problems)


class InputsMatter:
    """Prompt, noise level and position reach the velocity."""

    ID = "inputs-matter"
    TITLE = "prompt, its order, noise level and place of a latent each change the velocity"
    PITFALLS = (28,)

    @staticmethod
    def run(subject: Any) -> Measured:
        """Change one input at a time; each must be seen."""
        module = subject.new_module()
        settings = subject.settings()
        latents, timesteps = subject.trajectory(len(PROMPTS), settings)

        def velocity(prompts: Any = PROMPTS, where: Any = latents, when: Any = timesteps) -> torch.Tensor:
            with torch.no_grad():
                inputs, _ = subject.inputs(module, prompts, settings=settings, trajectory=(where, when))
                found: torch.Tensor = subject.velocity(module, inputs)
                return found

        base = velocity()
        others = [(*prompt[:-1], prompt[-1] + 20) for prompt in PROMPTS]
        rolled = velocity(where=latents.roll(1, dims=2)).roll(-1, dims=1)
        seen = {
            "another last token": relative(velocity(others), base),
            "another noise level": relative(velocity(when=timesteps.roll(-2, dims=1)), base),
            "latents in other places": relative(rolled, base),
        }
        if not subject.needs_embeddings:  # an encoder's states contain their position, and need none in the denoiser
            seen["a reversed prompt"] = relative(velocity([prompt[::-1] for prompt in PROMPTS]), base)
        problems = []
        inputs, _ = subject.inputs(module, settings=settings, trajectory=(latents, timesteps))
        columns = subject.references(latents)
        if LENGTHS in columns:  # not an input of the module: ids beyond a length are cut off, or masked in a batch
            batch = subject.micro_batch(PROMPTS, latents)
            batch[LENGTHS] = columns[LENGTHS] - (torch.arange(len(PROMPTS)) == 0).long()[:, None]
            with torch.no_grad():
                shorter, _ = subject.prepared(module, settings, (latents, timesteps), batch)
                seen["a shorter reference image"] = relative(subject.velocity(module, shorter)[:1], base[:1])
        for column in (name for name in columns if name != LENGTHS):
            name = column.removeprefix("reference_")
            given = getattr(inputs["reference"], name)
            moved = given.roll(1, dims=-1).requires_grad_(given.is_floating_point())
            found = subject.velocity(module, {**inputs, "reference": inputs["reference"]._replace(**{name: moved})})
            seen[f"other {name} of the reference image"] = relative(found.detach(), base)
            if moved.requires_grad and not torch.autograd.grad(found.sum(), moved)[0].any():
                problems.append(f"nothing is learned through the {name} of the reference image")
        problems += [f"{name} changes nothing" for name, value in seen.items() if not value > LEAST]
        return Measured("; ".join(f"{name} {value:.1e}" for name, value in seen.items()), problems)

    @staticmethod
    def run_recorded(subject: Any) -> Measured:
        """Exchange the recorded calls, take those of another step, move the latents; each must be seen."""
        module = subject.new_module()
        settings = subject.settings()
        latents, timesteps = subject.trajectory(len(PROMPTS), settings)
        latents[:, 2] = latents[:, 0]

        def velocity(prompts: Any = PROMPTS, where: Any = latents, step: int = 0) -> torch.Tensor:
            with torch.no_grad():
                inputs, _ = subject.inputs(module, prompts, step=step, settings=settings, trajectory=(where, timesteps))
                found: torch.Tensor = subject.velocity(module, inputs)
                return found

        base = velocity()
        rolled = velocity(where=latents.roll(1, dims=-1)).roll(-1, dims=-1)
        others = velocity([*PROMPTS[1:], PROMPTS[0]])
        seen = {f"the calls of another prompt ({i + 1})": relative(others[i], base[i]) for i in range(len(PROMPTS))}
        seen["the calls of another step"] = relative(velocity(step=2), base)
        seen["latents in other places"] = relative(rolled, base)
        problems = [f"{name}: changes nothing" for name, value in seen.items() if not value > LEAST]
        return Measured("; ".join(f"{name} {value:.1e}" for name, value in seen.items()), problems)


class Determinism:
    """The same inputs give the same velocity."""

    ID = "determinism"
    TITLE = "the same inputs give the same velocity, whatever the state of the random generators"
    LIMIT = 0.0  # the same operations in the same order on one thread; log-prob ratios start at exactly 1

    @staticmethod
    def run(subject: Any) -> Measured:
        """Compare two calls under different seeds, in eval mode."""
        module = subject.new_module()
        inputs, _ = subject.inputs(module)
        before = {name: value.clone() for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        with torch.no_grad():
            torch.manual_seed(1)
            first = subject.velocity(module, inputs)
            torch.manual_seed(2)
            second = subject.velocity(module, inputs)
        value = difference(first, second)
        changed = [name for name, tensor in before.items() if not same(tensor, inputs[name])]
        problems = [f"forward changes its argument {name} in place" for name in changed]
        return Measured(f"two calls differ by {value:g}", problems, value, Determinism.LIMIT, "absolute")


class TrainMode:
    """Training mode computes what the rollout computes."""

    ID = "train-mode"
    TITLE = "in train mode velocity, mean and log-prob of a step are those of eval mode, and gradients flow"
    PITFALLS = (12,)
    LIMIT = 0.0  # the rollout has no train mode: any difference biases the first log-prob ratio

    @staticmethod
    def run(subject: Any) -> Measured:
        """Compare eval mode with ``train()`` followed by ``configure_train_mode``, under two seeds for dropout."""
        module = subject.new_module()
        inputs, _ = subject.inputs(module)
        names = ("velocity", "log-prob", "mean")
        with torch.no_grad():
            expected = (subject.velocity(module, inputs), *_step(subject, module))
        subject.train(module)
        worst = dict.fromkeys(names, 0.0)
        for seed in (1, 2):
            torch.manual_seed(seed)
            found = (subject.velocity(module, inputs), *_step(subject, module))
            for name, one, other in zip(names, found, expected, strict=True):
                worst[name] = max(worst[name], difference(one.detach(), other))
        problems = [] if found[0].requires_grad else ["the velocity has no gradient in train mode"]
        told = ", ".join(f"{name} {value:g}" for name, value in worst.items())
        return Measured(
            f"train and eval mode differ by {told}", problems, max(worst.values()), TrainMode.LIMIT, "absolute"
        )


def _step(subject: Any, module: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-prob and mean of one guided step."""
    log_prob, mean, *_ = subject.log_prob(module, PROMPTS, subject.settings(), step=1)
    return log_prob, mean
