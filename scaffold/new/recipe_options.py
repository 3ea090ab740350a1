"""Options of ``new`` that end in the spec, as if a person had set the values there: an update carries them over."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError

if TYPE_CHECKING:
    from scaffold.spec import IntegrationSpec

PICKSCORE = ("pkg://verl_omni.utils.reward_score.pickscore_reward", "compute_score_pickscore")
_RESOLUTION = re.compile(r"(\d{1,5})(?:x(\d{1,5}))?")
_FUNCTION = re.compile(r"(?P<file>(?:[^:\s]|pkg://)+):(?P<name>[A-Za-z_]\w*)", re.ASCII)


@dataclass(frozen=True)
class RecipeOptions:
    """What was given of ``--reward``, ``--gpus``, ``--lora-rank`` and ``--resolution``."""

    reward: str | None = None
    gpus: int | None = None
    lora_rank: int | None = None
    resolution: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The options that were given, by their flags."""
        values = {f"--{field.name.replace('_', '-')}": getattr(self, field.name) for field in fields(self)}
        return {flag: value for flag, value in values.items() if value is not None}


NO_OPTIONS = RecipeOptions()


def with_options(spec: IntegrationSpec, options: RecipeOptions) -> IntegrationSpec:
    """Return the spec with the values that were given.

    Raises:
        ScaffoldError: a value that the recipe cannot have.
    """
    found = _reward(options.reward) | _gpus(spec, options.gpus)
    found |= _lora(spec, options.lora_rank) | _resolution(spec, options.resolution)
    sections = {name: dict(values) for name, values in spec.sections.items()}
    provenance = dict(spec.provenance)
    for name, (value, flag) in found.items():
        section, _, key = name.partition(".")
        sections[section][key] = value
        provenance[name] = f"flag {flag}"
    return replace(spec, sections=sections, provenance=provenance)


Values = dict[str, tuple[Any, str]]


def _reward(given: str | None) -> Values:
    if given is None or given == "ocr":
        return {}
    function = _FUNCTION.fullmatch(given)
    if given == "pickscore":
        path, name = PICKSCORE
    elif function is not None:
        path, name = function["file"], function["name"]
    else:
        hint = "give ocr, pickscore, or FILE:FUNCTION such as rewards/mine.py:compute_score"
        raise ScaffoldError(f"--reward {given} is none that is known", hint=hint)
    return {"recipe.reward_file": (path, "--reward"), "recipe.reward_function": (name, "--reward")}


def _gpus(spec: IntegrationSpec, given: int | None) -> Values:
    if given is None:
        return {}
    images = int(spec.value("recipe.mini_batch_size")) * int(spec.value("recipe.group_size"))
    if images % given:
        near = max(count for count in range(1, given) if images % count == 0)
        hint = f"{near} GPUs would do, or change the batch sizes in scaffold.toml"
        raise ScaffoldError(f"--gpus {given} does not divide the {images} images of an update", hint=hint)
    reward = min(int(spec.value("recipe.reward_gpus")), given)
    return {"recipe.gpus": (given, "--gpus"), "recipe.reward_gpus": (reward, "--gpus")}


def _lora(spec: IntegrationSpec, given: int | None) -> Values:
    """The rank, and an alpha that scales the adapter as before."""
    if given is None:
        return {}
    if spec.value("lora.sync") == "none":
        raise ScaffoldError("--lora-rank is of no use: this package trains without LoRA", hint="leave it out")
    alpha = int(spec.value("lora.alpha")) * given / int(spec.value("lora.rank"))
    return {"lora.rank": (given, "--lora-rank"), "lora.alpha": (max(1, round(alpha)), "--lora-rank")}


def _resolution(spec: IntegrationSpec, given: str | None) -> Values:
    if given is None:
        return {}
    sizes = _RESOLUTION.fullmatch(given)
    if sizes is None:
        raise ScaffoldError(
            f"--resolution {given} is no size", hint="give pixels: 512, or WIDTHxHEIGHT such as 768x512"
        )
    width, height = int(sizes[1]), int(sizes[2] or sizes[1])
    latents = spec.sections.get("latents", {})
    token = int(latents.get("downsample") or 1) * int(latents.get("patch") or 1)
    side = spec.value("architecture.position_table_side")
    for name, pixels in (("width", width), ("height", height)):
        if not pixels or pixels % token:
            raise ScaffoldError(f"--resolution {given}: the {name} is no multiple of {token}, the pixels of a token")
        if side and pixels > int(side) * token:
            raise ScaffoldError(f"--resolution {given}: the model has positions for {int(side) * token} pixels")
    return {"recipe.width": (width, "--resolution"), "recipe.height": (height, "--resolution")}
