"""Options of ``new`` that set values of the spec as a person would, so that an update keeps them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.algorithms import ALGORITHMS
from scaffold.errors import ScaffoldError
from scaffold.files.reading import expanded, read_text
from scaffold.source.bindings import bound_names
from scaffold.spec.ranges import fitting

if TYPE_CHECKING:
    from scaffold.spec import IntegrationSpec

PICKSCORE = ("pkg://verl_omni.utils.reward_score.pickscore_reward", "compute_score_pickscore")
_RESOLUTION = re.compile(r"(\d{1,5})(?:x(\d{1,5}))?")
RANK = 64  # the default rank of an adapter that replaces full fine-tuning; alpha is the spec's
_FUNCTION = re.compile(r"(?P<file>(?:[^:\s]|pkg://)+):(?P<name>[A-Za-z_]\w*)", re.ASCII)


@dataclass(frozen=True)
class RecipeOptions:
    """The values of ``--reward``, ``--gpus``, ``--lora-rank``, ``--resolution``, ``--guidance`` and ``--algorithm``."""

    reward: str | None = None
    gpus: int | None = None
    lora_rank: int | None = None
    resolution: str | None = None
    guidance: tuple[str, ...] = ()
    algorithm: tuple[str, ...] = ()

    @property
    def flags(self) -> dict[str, Any]:
        """The options that were given, by their flags."""
        values = {f"--{field.name.replace('_', '-')}": getattr(self, field.name) for field in fields(self)}
        return {flag: value for flag, value in values.items() if value not in (None, ())}


NO_OPTIONS = RecipeOptions()


def with_options(spec: IntegrationSpec, options: RecipeOptions) -> IntegrationSpec:
    """Return the spec with the given values.

    Raises:
        ScaffoldError: a value that the recipe cannot have.
    """
    found = _reward(spec, options.reward) | _gpus(spec, options.gpus) | _guidance(spec, options.guidance)
    found |= _lora(spec, options.lora_rank) | _resolution(spec, options.resolution)
    found |= _algorithms(spec, options.algorithm, lora=options.lora_rank)
    sections = {name: dict(values) for name, values in spec.sections.items()}
    provenance = dict(spec.provenance)
    for name, (value, flag) in found.items():
        section, _, key = name.partition(".")
        sections[section][key] = value
        provenance[name] = f"flag {flag}"
    return replace(spec, sections=sections, provenance=provenance)


Values = dict[str, tuple[Any, str]]


def _reward(spec: IntegrationSpec, given: str | None) -> Values:
    if given == "ocr" and "media" in spec.sections and not spec.value("media.ocr"):
        hint = "give FILE:FUNCTION, or leave it out: the scripts ask for a file"
        raise ScaffoldError(
            f"--reward ocr reads words off pictures; nothing that {_pipeline(spec)} makes has any", hint=hint
        )
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


def with_reward_found(options: RecipeOptions, root: Path) -> RecipeOptions:
    """Look up the file and the function of ``--reward``, in the tree that is written and then in the current folder.

    Args:
        options: of the command line.
        root: of the tree, from which the launch script names the file.

    Returns:
        The options, with the whole path of a file that does not lie in the tree.

    Raises:
        ScaffoldError: there is no such file, or no such function in it.
    """
    function = _FUNCTION.fullmatch(options.reward or "")
    if function is None or "://" in function["file"]:
        return options
    given, name = function["file"], function["name"]
    found = next((place for place in (root / expanded(given), Path.cwd() / expanded(given)) if place.is_file()), None)
    if found is None:
        hint = f"it is looked for in {root} and here; of an installed module give pkg://MODULE:FUNCTION"
        raise ScaffoldError(f"--reward {options.reward}: there is no file {given}", hint=hint)
    try:
        names = bound_names(read_text(found))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ScaffoldError(f"--reward {options.reward}: {found} is no Python: {error}") from None
    if name not in names and "*" not in names:
        close = get_close_matches(name, names, 1)
        near = f"did you mean {close[0]}?" if close else None
        raise ScaffoldError(f"--reward {options.reward}: {given} has no {name}", hint=near)
    if (root / expanded(given)).is_file():
        return options
    whole = found.resolve()
    path = whole.relative_to(root.resolve()) if whole.is_relative_to(root.resolve()) else whole
    return replace(options, reward=f"{path}:{name}")


def _algorithms(spec: IntegrationSpec, given: tuple[str, ...], lora: int | None) -> Values:
    """Return the algorithms, each once, in the order given; ``lora`` is the rank that is asked for."""
    rank = 0 if spec.value("lora.sync") == "none" else spec.value("lora.rank") if lora is None else lora
    for name in given:
        if name not in ALGORITHMS:
            close = get_close_matches(name, ALGORITHMS, 1)
            near = f" (did you mean {close[0]}?)" if close else ""
            raise ScaffoldError(f"--algorithm {name} is none that is known{near}", hint=f"give {', '.join(ALGORITHMS)}")
        if ALGORITHMS[name].training is not None and not spec.value("inputs.recorded"):
            raise ScaffoldError(
                f"--algorithm {name} rests on calls of the denoiser that a rollout records; {_pipeline(spec)} has none",
                hint=f"give {', '.join(other for other, found in ALGORITHMS.items() if found.training is None)}",
            )
        if ALGORITHMS[name].training is not None and not rank:
            raise ScaffoldError(
                f"--algorithm {name} compares an adapter with the policy that it began at: it needs LoRA"
            )
    return {"recipe.algorithms": (list(dict.fromkeys(given)), "--algorithm")} if given else {}


def _gpus(spec: IntegrationSpec, given: int | None) -> Values:
    if given is None:
        return {}
    images = int(spec.value("recipe.mini_batch_size")) * int(spec.value("recipe.group_size"))
    if images % given:
        near = max(count for count in range(1, given) if images % count == 0)
        hint = f"{near} GPUs would do, or change the batch sizes in scaffold.toml"
        raise ScaffoldError(f"--gpus {given} does not divide the {images} images of an update", hint=hint)
    reward = min(int(spec.value("recipe.reward_gpus")), given)
    micro = fitting(int(spec.value("recipe.micro_batch_size")), images // given)
    sizes = {"gpus": given, "reward_gpus": reward, "micro_batch_size": micro}
    return {f"recipe.{name}": (size, "--gpus") for name, size in sizes.items() if spec.value(f"recipe.{name}") != size}


def _lora(spec: IntegrationSpec, given: int | None) -> Values:
    """Return the rank, and the alpha that keeps the adapter's scale; rank 0 means no adapter."""
    without = spec.value("lora.sync") == "none"
    if given is None or (without and not given):
        return {}
    if without:
        raise ScaffoldError("--lora-rank has no effect: this package trains without LoRA", hint="leave it out")
    if not given and not spec.value("target.trainable_params_hook"):
        release = spec.value("target.profile")
        hint = "give a rank, or write for a later release"
        raise ScaffoldError(f"--lora-rank 0: verl-omni {release} asks no package what to train in full", hint=hint)
    if not given:
        return {"lora.rank": (0, "--lora-rank")}
    alpha = int(spec.value("lora.alpha")) * given / (int(spec.value("lora.rank")) or RANK)
    return {"lora.rank": (given, "--lora-rank"), "lora.alpha": (max(1, round(alpha)), "--lora-rank")}


def _resolution(spec: IntegrationSpec, given: str | None) -> Values:
    if given is None:
        return {}
    sizes = _RESOLUTION.fullmatch(given)
    if sizes is None:
        raise ScaffoldError(
            f"--resolution {given} is not a size", hint="give pixels: 512, or WIDTHxHEIGHT such as 768x512"
        )
    width, height = int(sizes[1]), int(sizes[2] or sizes[1])
    latents = spec.sections.get("latents", {})
    token = int(latents.get("downsample") or 1) * int(latents.get("patch") or 1)
    side = spec.value("architecture.position_table_side")
    for name, pixels in (("width", width), ("height", height)):
        if not pixels or pixels % token:
            raise ScaffoldError(f"--resolution {given}: the {name} is not a multiple of {token}, the pixels of a token")
        if side and pixels > int(side) * token:
            raise ScaffoldError(f"--resolution {given}: the model has positions for {int(side) * token} pixels")
    return {"recipe.width": (width, "--resolution"), "recipe.height": (height, "--resolution")}


def guidance_of(spec: IntegrationSpec) -> dict[str, Any]:
    """The guidance of the recipe: each parameter that a request sets, with its value."""
    return dict(spec.value(_guidance_key(spec)) or {})


def guidance_origin(spec: IntegrationSpec) -> str:
    """Where these values come from."""
    return str(spec.provenance.get(_guidance_key(spec), "the pipeline's own"))


def _guidance_key(spec: IntegrationSpec) -> str:
    return "guidance.defaults" if spec.ported else "cfg.defaults"


def _pipeline(spec: IntegrationSpec) -> str:
    return str(spec.value("upstream.class") or "this pipeline")


def _guidance(spec: IntegrationSpec, given: tuple[str, ...]) -> Values:
    """Return the values of the named parameters, each checked against its type."""
    if not given:
        return {}
    values = guidance_of(spec)
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in values:
            what = "is not a NAME=VALUE" if not equals else f"names no guidance of {_pipeline(spec)}"
            hint = f"there is {', '.join(values)}" if values else "no request sets guidance there"
            raise ScaffoldError(f"--guidance {text} {what}", hint=hint)
        values[name] = _value(spec, name, value, values[name])
    return {_guidance_key(spec): (values, "--guidance")}


def _value(spec: IntegrationSpec, name: str, text: str, there: Any) -> Any:
    if isinstance(there, str):
        kinds = spec.value("cfg.renorms") if name == spec.value("cfg.renorm_type") else None
        if kinds and text not in (*kinds, there):
            raise ScaffoldError(f"--guidance {name}={text} is none of the kinds there are", hint=", ".join(kinds))
        return text
    try:
        found = json.loads(text.lower() if isinstance(there, bool) else text)
    except ValueError:
        found = None
    if not _is_like(found, there):
        raise ScaffoldError(f"--guidance {name}={text} is of another kind", hint=f"a value such as {json.dumps(there)}")
    return _as(found, there)


def _is_like(found: Any, there: Any) -> bool:
    """Whether a value may replace another: a flag, a finite number, or a list of them of equal length."""
    if isinstance(there, bool) or isinstance(found, bool):
        return isinstance(there, bool) and isinstance(found, bool)
    if isinstance(there, list | tuple):
        return isinstance(found, list) and len(found) == len(there) and all(map(_is_like, found, there))
    if isinstance(there, int | float):
        return isinstance(found, int | float) and math.isfinite(found)
    return False


def _as(found: Any, there: Any) -> Any:
    """Return numbers as floats if the pipeline's are, so that 4 and 4.0 give the same spec."""
    if isinstance(there, list | tuple):
        return [_as(*pair) for pair in zip(found, there, strict=True)]
    return float(found) if isinstance(there, float) else found
