"""Which guidance settings a package has, under which names, with which defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scaffold.verify.measured import NotDrivableError
from scaffold.verify.subject.stand_in_velocity import TwoBranches
from scaffold.verify.subject.subject import PROMPTS

_ROLES = {
    "text_scale": ("text_scale", "text_cfg_scale", "guidance_scale"),
    "image_scale": ("img_scale", "image_scale"),
    "interval": ("interval",),
    "renorm_type": ("renorm_type",),
    "renorm_min": ("renorm_min",),
}
NEUTRAL: dict[str, Any] = {"image_scale": 1.0, "interval": (0.0, 1.0), "renorm_type": None, "renorm_min": 0.0}


@dataclass(frozen=True)
class Guidance:
    """Names of the settings, by what they mean, the recipe's values, and how an interval is meant."""

    names: dict[str, str]
    defaults: dict[str, Any]
    conventions: dict[str, Any] = field(default_factory=dict)

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
    asked: set[str] = set()
    settings = subject.settings(asked=asked)
    asked.clear()
    step(subject, settings)
    read = sorted(name for name in asked if "cfg" in name or "guidance" in name)
    names = {}
    declared = {subject.spec.get("cfg", {}).get(role): role for role in _ROLES}
    for name in read:
        role = declared.get(name) or next((role for role, ends in _ROLES.items() if name.endswith(ends)), None)
        if role is None:
            raise NotDrivableError(f"what the guidance setting {name!r} means is not known")
        names[role] = name
    if "text_scale" not in names:
        raise NotDrivableError("the training adapter reads no guidance scale from model_config.pipeline")
    rule = subject.spec.get("cfg", {}).get("interval_rule")
    conventions = {"interval_rule": rule, "time": subject.spec.get("upstream", {}).get("time")}
    return Guidance(names, _defaults(subject, names), {key: value for key, value in conventions.items() if value})


def _defaults(subject: Any, names: dict[str, str]) -> dict[str, Any]:
    """The recipe's values: what upstream sees when a request gives none."""
    seen = subject.passed_on()
    missing = [name for name in names.values() if name not in seen]
    if missing:
        raise NotDrivableError(
            f"the rollout adapter passes no {', '.join(missing)} on; upstream's default is not known"
        )
    return {role: seen[name] for role, name in names.items()}


def step(subject: Any, settings: Any, index: int = 1) -> tuple[TwoBranches, Any, Any, tuple[Any, ...]]:
    """One step of the training adapter over two known branches.

    Returns:
        The module, latents, timesteps, and what the adapter returned.
    """
    probe = TwoBranches(subject, None)
    trajectory = subject.unlike(len(PROMPTS), settings, levels=False)
    inputs, negative = subject.inputs(probe, settings=settings, step=index, trajectory=trajectory)
    module = TwoBranches(subject, negative)
    recorded = {"all_latents": trajectory[0], "all_timesteps": trajectory[1]}
    result = subject.training.forward_and_sample_previous_step(
        module, subject.scheduler(settings), settings, inputs, negative, recorded, index
    )
    return module, *trajectory, result
