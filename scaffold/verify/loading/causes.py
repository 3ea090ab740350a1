"""What a checkpoint is where it is not what the package loads, in one line for one cause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from scaffold.checkpoint.quoting import quoted

# Parts of names that training frameworks and other programs put into all of them.
WRAPPERS = ("_fsdp_wrapped_module.", "_orig_mod.", "_checkpoint_wrapped_module.")
PREFIXES = ("model.diffusion_model.", "diffusion_model.", "module.", "base_model.model.", "model.", "transformer.")
OWN = ("model.", "transformer.")  # of these, models' own names begin with, too
QUANTISED = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4", "I8", "U8")
_SCALE = re.compile(r"(.*?)[._]?(weight_scale(_inv|_2)?|input_scale|scale_weight|scale_input|scales?|qzeros|absmax)")
# What a model that was distilled of its own guidance takes beside the time.
_DISTILLED = re.compile(r"(^|\.)(guidance_emb\w*|guidance_in|timestep_r_emb\w*)(\.|$)")
_FLAGS = ("cfg_distilled", "guidance_distilled", "use_meanflow")


def wrapper_of(names: Iterable[str], looked_for: tuple[str, ...] = (*WRAPPERS, *PREFIXES)) -> str | None:
    """What stands in front of all names, or inside of some, and is not part of any model's own names."""
    names = list(names)
    for part in looked_for:
        if (
            any(part in name for name in names)
            if part in WRAPPERS
            else names and all(n.startswith(part) for n in names)
        ):
            return part
    return None


def unwrapped(name: str, part: str) -> str:
    """A name without it."""
    return name.replace(part, "") if part in WRAPPERS else name.removeprefix(part)


def told_wrapper(names: Iterable[str], part: str, *, loads: bool) -> str:
    """The line."""
    names = list(names)
    there = [name for name in names if part in name]
    begin = sum(name.startswith(part) for name in names)
    how = f"all keys begin with {quoted(part)}" if begin == len(names) else f"{len(there)} keys have {quoted(part)}"
    done = ": without it the package loads them; write the checkpoint again under its own names"
    return how + (done if loads else "")


def quantised(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> str | None:
    """The line for weights in eight bits or fewer; None where there are none."""
    narrow = [name for name, (dtype, shape) in tensors.items() if dtype in QUANTISED and len(shape) > 1]
    if not narrow:
        return None
    dtypes = ", ".join(sorted({tensors[name][0] for name in narrow}))
    scales = [name for name in tensors if _SCALE.fullmatch(name)]
    their_scales = f"{len(scales)} scales, {quoted(scales[0])} first" if scales else "no tensor that holds their scales"
    return (
        f"a quantised checkpoint: {len(narrow)} weights are {dtypes}, {quoted(narrow[0])} first, with {their_scales}; "
        "training needs the weights in bf16 or float32"
    )


def is_scale(name: str) -> bool:
    """Whether a tensor is what a quantised weight is multiplied with."""
    return _SCALE.fullmatch(name) is not None


def distilled(
    names: Iterable[str], taken: Iterable[str], configs: Mapping[str, Mapping[str, Any]]
) -> tuple[str, bool] | None:
    """The line for a model that was distilled of its guidance, and whether the package takes what it has for that."""
    found = [name for name in names if _DISTILLED.search(name)]
    skipped = sorted(set(found) - set(taken))
    flags = [f"{flag} in {file}" for file, config in configs.items() for flag in _FLAGS if config.get(flag) is True]
    if not skipped and not flags:
        return None
    shown = skipped or found
    signs = [*flags, *([f"{len(shown)} tensors such as {quoted(shown[0])}"] if shown else [])]
    line = f"a distilled variant: {', '.join(signs)}"
    if skipped or not found:
        return f"{line}, which the package does not take; give the model before distilling", False
    return f"{line}; training has the guidance that is in the weights", True
