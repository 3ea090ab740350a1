"""Whether the values of a spec's knobs can be had, each by itself and together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.spec.knobs import KNOBS, is_knob

if TYPE_CHECKING:
    from scaffold.spec.model import IntegrationSpec

# What divides the sides of every picture: no autoencoder and no patch of vllm-omni's pipelines is finer.
FINEST = 8
_ROLES = ("text_scale", "image_scale", "interval", "renorm_type", "renorm_min")
_COUNT = re.compile(r"n([+-]\d+)?")


def require_ranges(spec: IntegrationSpec, source: str) -> None:
    """Check the knobs of a spec.

    Args:
        spec: what is checked.
        source: what errors call it.

    Raises:
        ScaffoldError: names the first key whose value cannot be had, and what it may be.
    """
    for name, knob in KNOBS.items():
        section, _, key = name.partition(".")
        if not is_knob(name, ported=spec.ported) or key not in spec.sections.get(section, {}):
            continue
        value = spec.value(name)
        if value is None and knob.unset is None:
            raise ScaffoldError(f"{source}: {name} has no value", hint=f"it must be {knob.wanted}")
        if value is not None and not knob.fits(value):
            raise ScaffoldError(f"{source}: {name} is {value!r}", hint=f"it must be {knob.wanted}")
    rules = (_guidance, _window, _batches, _sides, _targets, _merge)
    for name, wanted in (found for rule in rules for found in rule(spec)):
        raise ScaffoldError(f"{source}: {name} is {spec.value(name)!r}", hint=f"it must be {wanted}")


Wrong = Iterator[tuple[str, str]]


def _guidance(spec: IntegrationSpec) -> Wrong:
    """Every setting is one that the pipeline reads, and what guidance is computed with is there."""
    section = "guidance" if spec.ported else "cfg"
    settings, known = spec.value(f"{section}.defaults"), spec.value("upstream.guidance")
    if not isinstance(settings, dict):
        return
    roles = ("scale",) if spec.ported else _ROLES
    used = [spec.value(f"{section}.{role}") for role in roles]
    for name in filter(None, used):
        if name not in settings:
            yield f"{section}.defaults", f"a table that has {name}, which guidance is computed with"
    if not isinstance(known, list) or not all(isinstance(name, str) for name in known):
        return
    for name in settings:
        if name not in known:
            close = get_close_matches(name, known, 1)
            near = f" (did you mean {close[0]}?)" if close else ""
            yield f"{section}.defaults", f"a table of {', '.join(known)}: the pipeline reads no {name}{near}"


def evaluations(spec: IntegrationSpec) -> int | None:
    """How often a rollout of the recipe calls the scheduler; None where the pipeline's count is not known."""
    asked, found = spec.value("recipe.num_inference_steps"), _COUNT.fullmatch(spec.value("schedule.steps") or "")
    return asked + int(found[1] or 0) if found and isinstance(asked, int) else None


def _window(spec: IntegrationSpec) -> Wrong:
    count, size, span = evaluations(spec), spec.value("recipe.sde_window_size"), spec.value("recipe.sde_window_range")
    if count is not None and count < 1:
        yield "recipe.num_inference_steps", f"larger: the pipeline takes {spec.value('schedule.steps')} steps for n"
    if span is None or size is None:
        return
    if count is not None and span[1] > count:
        yield "recipe.sde_window_range", f"within the {count} steps of a rollout"
    if size > span[1] - span[0]:
        yield "recipe.sde_window_size", f"at most the {span[1] - span[0]} steps of recipe.sde_window_range"


def _batches(spec: IntegrationSpec) -> Wrong:
    names = ("train_batch_size", "mini_batch_size", "group_size", "gpus", "micro_batch_size")
    batch, mini, group, gpus, micro = (spec.value(f"recipe.{name}") for name in names)
    if None in (batch, mini, group, gpus, micro):
        return
    if batch % mini:
        yield "recipe.mini_batch_size", f"a divisor of the {batch} prompts of a step"
    images = mini * group
    parallel = spec.value("recipe.tensor_parallel")
    if parallel is not None and gpus % parallel:
        yield "recipe.tensor_parallel", f"a divisor of the {gpus} GPUs"
    if images % gpus:
        yield "recipe.gpus", f"a divisor of the {images} images of an update"
    elif images // gpus % micro:
        yield "recipe.micro_batch_size", f"a divisor of the {images // gpus} images of an update on each of {gpus} GPUs"


def _sides(spec: IntegrationSpec) -> Wrong:
    latents: dict[str, Any] = dict(spec.sections.get("latents", {}))
    token = int(latents.get("downsample") or 1) * int(latents.get("patch") or 1)
    step = token if "latents" in spec.sections else FINEST
    table = spec.value("architecture.position_table_side")
    for name in ("recipe.height", "recipe.width"):
        pixels = spec.value(name)
        if pixels is not None and pixels % step:
            yield name, f"a multiple of {step} pixels"
        if pixels is not None and table and pixels > table * token:
            yield name, f"at most {table * token}: the model has no positions beyond"


def _targets(spec: IntegrationSpec) -> Wrong:
    known, targets = spec.value("lora.linears"), spec.value("lora.targets")
    for target in targets if known and targets else ():
        if not any(_ends(name.split("."), target.split(".")) for name in known):
            ends = dict.fromkeys(name.rpartition("*.")[2] for name in known)
            close = get_close_matches(target, ends, 1)
            near = f" (did you mean {close[0]}?)" if close else ""
            yield "lora.targets", f"names of linear layers of the module, which has no {target}{near}"


def _merge(spec: IntegrationSpec) -> Wrong:
    """The trainer merges an adapter where the release can, and has to where nothing else brings it into the rollout."""
    if spec.value("lora.merge") and not spec.value("target.lora_merge"):
        release = spec.value("target.profile")
        yield "lora.merge", f"false: verl-omni {release} has no actor_rollout_ref.model.lora.merge"
    if spec.value("lora.merge") is False and spec.value("lora.sync") == "merge":
        yield "lora.merge", "true: this release brings an adapter into the rollout in no other way"


def _ends(name: list[str], end: list[str]) -> bool:
    """Whether a dotted name, in which ``*`` stands for any part, ends in another."""
    return len(end) <= len(name) and all(a in ("*", b) for a, b in zip(reversed(name), reversed(end), strict=False))


def fitting(micro: int, images: int) -> int:
    """Return the largest micro-batch up to ``micro`` that divides the images of an update on one GPU."""
    return max(size for size in range(1, min(micro, images) + 1) if images % size == 0)
