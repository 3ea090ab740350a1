"""Which guidance settings a package has, under which names, with which defaults, and what its module predicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from scaffold.verify.formulas import relative, transition
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.subject.stand_in_velocity import KnownVelocity, TwoBranches, velocity_of
from scaffold.verify.subject.subject import PROMPTS

_ROLES = {
    "text_scale": ("text_scale", "text_cfg_scale", "guidance_scale", "true_cfg_scale"),
    "image_scale": ("img_scale", "image_scale"),
    "interval": ("interval",),
    "renorm_type": ("renorm_type",),
    "renorm_min": ("renorm_min",),
}
NEUTRAL: dict[str, Any] = {"image_scale": 1.0, "interval": (0.0, 1.0), "renorm_type": None, "renorm_min": 0.0}


@dataclass(frozen=True)
class Guidance:
    """Names of the settings, by what they mean, the values without a request's, and how an interval is meant.

    ``dropped`` are names whose values the rollout adapter has and upstream never sees.
    """

    names: dict[str, str]
    defaults: dict[str, Any]
    conventions: dict[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()

    def values(self, **changes: Any) -> dict[str, Any]:
        """The recipe's values with ``changes``, by meaning."""
        return {**NEUTRAL, **self.conventions, **self.defaults, **changes}

    def settings(self, **changes: Any) -> dict[str, Any]:
        """``changes`` under the package's own names."""
        return {self.names[role]: value for role, value in changes.items()}


def guidance(subject: Any) -> Guidance:
    """Find the settings that the training adapter reads, and the defaults that the rollout adapter passes on.

    Raises:
        NotDrivableError: the adapter reads none, one whose meaning its name does not say, or the defaults are not
            known.
    """
    names = names_read(subject)
    rule = subject.spec.get("cfg", {}).get("interval_rule")
    conventions = {"interval_rule": rule, "time": subject.spec.get("upstream", {}).get("time")}
    seen, own = subject.passed_on(), _recipe(subject)
    dropped = tuple(name for name in names.values() if seen.get(name) is None and own.get(name) is not None)
    scales = subject.job["upstream"].get("scales") or {}
    known = {**scales, **seen, **{name: own[name] for name in dropped}}
    missing = [name for name in names.values() if name not in known]
    if missing:
        raise NotDrivableError(
            f"the rollout adapter passes no {', '.join(missing)} on; upstream's default is not known"
        )
    defaults = {role: known[name] for role, name in names.items()}
    return Guidance(names, defaults, {key: value for key, value in conventions.items() if value}, dropped)


def names_read(subject: Any) -> dict[str, str]:
    """Names of the settings that the training adapter reads, by what they mean; ``text_scale`` is among them.

    Raises:
        NotDrivableError: the adapter reads no scale, or a setting whose meaning its name does not say.
    """
    asked: set[str] = set()
    settings = subject.settings(asked=asked)
    asked.clear()
    step(subject, settings)
    names: dict[str, str] = {}
    declared = {subject.spec.get("cfg", {}).get(role): role for role in _ROLES}
    declared[subject.table.guidance] = "text_scale"
    for name in sorted(name for name in asked if "cfg" in name or "guidance" in name):
        role = declared.get(name) or next((role for role, ends in _ROLES.items() if name.endswith(ends)), None)
        if role is None:
            raise NotDrivableError(f"what the guidance setting {name!r} means is not known")
        if role in names:
            raise NotDrivableError(f"which of {names[role]} and {name} the training adapter guides with is not known")
        names[role] = name
    if "text_scale" not in names:
        raise NotDrivableError("the training adapter reads no guidance scale from model_config.pipeline")
    return names


def guidance_of(subject: Any) -> Guidance | None:
    """The same, or None where it is not known."""
    try:
        return guidance(subject)
    except NotDrivableError:
        return None


def without_guidance(subject: Any) -> dict[str, Any]:
    """The setting that switches guidance off; empty where a known velocity shows that there is none to switch off.

    A module that predicts one velocity in both branches is guided to that velocity, renormed or not, so contracts
    that use one stay right where the names are not known.
    """
    found = guidance_of(subject)
    return {} if found is None else found.settings(text_scale=1.0)


def _recipe(subject: Any) -> dict[str, Any]:
    """The spec's values, which are not the pipeline's: only the rollout adapter brings them to upstream."""
    return dict(subject.spec.get("cfg", {}).get("defaults") or {})


def step(
    subject: Any, settings: Any, index: int = 1, prompts: Any = PROMPTS
) -> tuple[TwoBranches, Any, Any, tuple[Any, ...]]:
    """One step of the training adapter over two known branches.

    Returns:
        The module, latents, timesteps, and what the adapter returned.
    """
    probe = TwoBranches(subject, None)
    trajectory = subject.unlike(len(prompts), settings, levels=False)
    inputs = subject.inputs(probe, prompts, settings=settings, step=index, trajectory=trajectory)
    module = TwoBranches(subject, inputs[1], inputs[0])
    return module, *trajectory, subject.scored(module, settings, inputs, trajectory, index)


_LIMIT = 1e-5  # as for sde-step


def predicts_clean(subject: Any) -> bool:
    """Whether the adapter takes the module's output for the clean sample, and makes the velocity of it by itself.

    Both branches predict the same, so that guidance does not matter.
    """
    settings = subject.settings(sde_type="sde", noise_level=0.7)
    try:
        sigmas = [float(value) for value in subject.scheduler(settings).sigmas]
        latents, timesteps = subject.trajectory(len(PROMPTS), settings)
        found = subject.log_prob(KnownVelocity(subject), PROMPTS, settings, step=1, trajectory=(latents, timesteps))[1]
        velocity = as_velocity(velocity_of(latents[:, 1]), latents[:, 1], sigmas[1], clean=True)
        mean, _ = transition("sde", latents[:, 1], velocity, (sigmas[1], sigmas[2], sigmas[1]), 0.7)
        return relative(found, mean) <= _LIMIT
    except Exception:
        return False  # what is wrong is found out, and told, by the contracts


def as_velocity(predicted: Tensor, sample: Tensor, sigma: float, clean: bool) -> Tensor:
    """The velocity of a prediction, of the shape of ``sample``; float64 where it is made of a clean sample."""
    return (sample.double() - predicted.double()) / sigma if clean else predicted
