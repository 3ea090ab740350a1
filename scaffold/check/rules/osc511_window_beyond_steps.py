"""The SDE window of a script does not fit its range, or the range reaches beyond the steps that have noise.

Noise and log-probs exist only inside the window. A range that ends after the last denoising step, or is smaller than
the window, gives some ranks a window without steps: their samples carry no log-probs, and the batch cannot be put
together. Under ``cps`` a step's deviation is a share of the next noise level, which is 0 after the last step: it has no
noise there, the log-prob has no gradient, and nothing is trained.

    num_inference_steps=15 sde_window_size=2 sde_window_range='[0, 20]'

Instead: let the range end at or before the number of steps and hold at least one window.
"""

from __future__ import annotations

import re

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.shell import ROLLOUT, integer, integers
from scaffold.check.rule import Hit, Hits

ID = "OSC511"
NAME = "window-beyond-steps"
SEVERITY = "warning"
CHECKLIST = ("R6",)
_STEPS = r'(?m)^steps\s*=\s*"n-1"'


def check(package: Package) -> Hits:
    """Compare window, range and steps of each script."""
    fewer = 1 if _one_step_less(package) else 0
    for script in package.scripts:
        noise = script.override(f"{ROLLOUT}algo.noise_level")
        if noise is not None and package.is_non_diffusers and package.objective == "policy_gradient":
            if isinstance(noise.value, str) and re.fullmatch(r"0+(\.0*)?", noise.value):
                text = "without noise no step has a log-prob, and nothing is trained"
                yield Hit(script, noise.value_span, text, "give a noise level above 0")
        steps_option = script.override(f"{ROLLOUT}pipeline.num_inference_steps")
        size_option = script.override(f"{ROLLOUT}algo.sde_window_size")
        range_option = script.override(f"{ROLLOUT}algo.sde_window_range")
        steps = integer(steps_option.value) if steps_option is not None else None
        size = integer(size_option.value) if size_option is not None else None
        kind = script.override(f"{ROLLOUT}algo.sde_type")
        silent = kind is not None and isinstance(kind.value, str) and kind.value.strip("\"'") == "cps"
        if size is None or size_option is None or size <= 0:
            continue
        bounds = integers(range_option.value) if range_option is not None else None
        if bounds is not None and len(bounds) == 2 and range_option is not None:
            low, high = bounds
            if high - low < size:
                text = f"a window of {size} steps does not fit into [{low}, {high})"
                yield Hit(script, range_option.span, text, "widen the range or shorten the window")
            elif steps is not None and high > steps - fewer:
                text = f"the range ends at step {high}, {steps} inference steps have {steps - fewer}"
                yield Hit(script, range_option.span, text, f"let the range end at {steps - fewer} at the latest")
            elif steps is not None and silent and high == steps - fewer:
                text = f"step {high - 1} is the last one, which has no noise and no gradient under cps"
                yield Hit(script, range_option.span, text, f"let the range end at {high - 1}")
        elif range_option is None and steps is not None and size > steps - fewer:
            text = f"a window of {size} steps, {steps} inference steps have {steps - fewer}"
            yield Hit(script, size_option.span, text, "shorten the window")


def _one_step_less(package: Package) -> bool:
    """Whether the package's own ``scaffold.toml`` says that n inference steps are n - 1 evaluations."""
    return re.search(_STEPS, package.project.text(f"{package.path}/scaffold.toml")) is not None


FAILING = (
    Example("no noise", launch=("noise_level=0.7", "noise_level=«0.0»")),
    Example(
        "the range is too long",
        launch=(
            "actor_rollout_ref.rollout.algo.sde_window_range='[0, 7]'",
            "«actor_rollout_ref.rollout.algo.sde_window_range='[0, 20]'»",
        ),
    ),
    Example(
        "the last step of cps",
        launch=[
            ("algo.sde_type=sde", "algo.sde_type=cps"),
            (
                "actor_rollout_ref.rollout.algo.sde_window_range='[0, 7]'",
                "«actor_rollout_ref.rollout.algo.sde_window_range='[0, 15]'»",
            ),
        ],
    ),
)
PASSING = (
    Example("up to the last step", launch=("sde_window_range='[0, 7", "sde_window_range='[0, 15")),
    Example(
        "up to the last step but one of cps",
        launch=[("algo.sde_type=sde", "algo.sde_type=cps"), ("sde_window_range='[0, 7", "sde_window_range='[0, 14")],
    ),
)
