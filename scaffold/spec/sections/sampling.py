"""How an image is sampled: [latents], [schedule], [cfg]."""

from __future__ import annotations

import re

from scaffold.errors import RefusedError
from scaffold.spec.blocks.latent_input import patch_modules
from scaffold.spec.configuration import ROOT, follow, positive_int, root_config
from scaffold.spec.section import Section

_SIZES = {
    "channels": ("answers.vae.channels", "latent_channel"),
    "downsample": ("answers.vae.downsample", "vae_downsample"),
    "patch": ("detail.latents.patch", "latent_patch_size"),
}


def fill_latents(section: Section) -> None:
    """Put channels, patch side and the factor of the image autoencoder; the checkpoint's own values come first.

    Raises:
        ScaffoldError: ``config.json`` is missing, or gives something that is not a positive integer.
        RefusedError: neither checkpoint nor source gives a value.
    """
    root = root_config(section)
    modules = patch_modules(section)
    if modules is not None:
        origin = section.sources.headers_origin
        section.put("channels", modules.channels, origin)
        section.put("downsample", 1, "pixels, no autoencoder")
        section.put("patch", modules.side * modules.merge, origin)
        section.put("layout", "(h w) (p q c) -> c (h p) (w q)", "block latent_input_patches")
        return
    if section.known_fact("patch", "detail.patches.side") is not None:
        section.fact("channels", "detail.patches.channels")
        section.put("downsample", 1, "pixels, no autoencoder")
        section.fact("layout", "detail.patches.layout")
        for key in ("sizes", "sizes_constant", "sizes_module"):
            section.known_fact(key, f"detail.image.{key}")
        return
    paths = section.sources.preset.value("checkpoint", "root_config") or {}
    for key, (fact, field) in _SIZES.items():
        path = paths.get(field)
        value = follow(root, path) if path else None
        if path is not None and value is not None:
            where = f"{section.sources.headers.source}: {ROOT}"
            section.put(key, positive_int({path: value}, path, where), f"configuration of the checkpoint ({path})")
        elif section.fact_or_preset(key, fact) is None:
            raise RefusedError(f"{section.sources.headers.source}: {key} of the latents could not be established")


EULER = "FlowMatchEulerDiscreteScheduler"

_COUNT = re.compile(r"n([+-]\d+)?")


def fill_schedule(section: Section) -> None:
    """Put steps and shift; ``request_offset`` makes a release that counts otherwise run the recipe's steps."""
    upstream = section.before["upstream"]["steps"]
    steps = section.preset_or_fact("steps", "answers.scheduler.steps")
    if upstream is None:
        # The recipe's count cannot be asked of a pipeline whose own is not known.
        steps = section.put("steps", None, "")
    wanted, counted = _beside_n(steps), _beside_n(upstream)
    offset = None if wanted is None or counted is None else wanted - counted
    section.put("request_offset", offset, "schedule.steps less upstream.steps")
    section.preset_or_fact("shift", "answers.scheduler.shift", float)
    if section.sources.report.value("answers.scheduler.class") not in (None, EULER):
        section.fact("solver", "answers.scheduler.class")
    if section.fact("direction", "answers.scheduler.direction") == "ascending":
        section.put("kind", "ascending", section.provenance["schedule.direction"])
    if section.known_fact("kind", "detail.schedule.kind") is not None:
        section.fact("parts", "detail.schedule.parts")
        section.fact("start_level", "detail.schedule.start_level")
        start, shift, parts = (section.values[key] for key in ("start_level", "shift", "parts"))
        level = _shifted(_shifted(start, shift), shift)  # the grid's start is shifted, and then the grid is
        highest = int(level * parts) / parts
        section.put("highest_level", highest, "schedule.start_level, shifted twice and cut to whole parts")


def _shifted(level: float, shift: float) -> float:
    """Return a noise level after the schedule's time shift."""
    return shift * level / (1 + (shift - 1) * level)


def _beside_n(steps: str | None) -> int | None:
    """What is added to n in a count of steps; None where it is no such sum, which no offset mends."""
    found = _COUNT.fullmatch(steps or "")
    return int(found[1] or 0) if found else None


_BRANCHES = "answers.cfg.branches"
_DECIDING = {
    _BRANCHES: "how many branches guidance has",
    "answers.cfg.interval": "at which steps guidance acts",
    "answers.cfg.renorm": "whether guidance rescales its result",
    "detail.cfg.formula": "how guidance combines its branches",
}


def fill_cfg(section: Section) -> None:
    """Put parameters and the part each plays, told by the kind of its default."""
    section.fact("branches", "answers.cfg.branches")
    section.fact("interval_rule", "detail.cfg.interval_rule")
    section.fact("epsilon", "detail.cfg.epsilon")
    section.fact("renorms", "answers.cfg.renorm")
    section.fact("formula", "detail.cfg.formula")
    upstream, origin = section.known("detail.cfg.parameters")
    scales, _ = section.known("answers.cfg.scales")
    recipe = section.sources.preset.value("cfg", "defaults") or {}
    defaults = {entry["name"]: recipe.get(entry["name"], entry["default"]) for entry in upstream or []}
    if recipe:
        origin += f"; preset {section.sources.preset.name}"
    section.put("defaults", defaults, origin)
    for role, name in zip(("text_scale", "image_scale"), list(scales or {}), strict=False):
        section.put(role, name, "order of answers.cfg.scales")
    section.fact("interval", "detail.cfg.interval_parameter")
    section.fact("renorm_type", "detail.cfg.renorm_parameter")
    taken = {section.values.get(role) for role in ("text_scale", "image_scale", "interval", "renorm_type")}
    left = [entry["name"] for entry in upstream or [] if entry["name"] not in taken]
    if len(left) > 1:
        section.lacks(f"the part that {', '.join(left)} play in guidance could not be established from the source")
    section.put("renorm_min", left[0] if len(left) == 1 else None, "the guidance parameter that is left")
    section.values.setdefault("text_scale", None)
    section.values.setdefault("image_scale", None)
    _put_declared(section)
    _require_known(section)


def _require_known(section: Section) -> None:
    """Note what decides a step and is unknown: nothing is there only where that is certain."""
    facts = section.sources.report
    for name, what in _DECIDING.items():
        if facts.fact(name).confidence == "unknown" and (section.values.get("branches") != 1 or name == _BRANCHES):
            section.lacks(f"{what} could not be established from the source ({name} is unknown)")


def _put_declared(section: Section) -> None:
    """Put the parameters that are fields of a request's sampling settings and not among its extra arguments."""
    facts = section.sources.report
    fields, extra = (facts.fact(f"answers.prompt.{name}").value or () for name in ("sampling_params", "extra_args"))
    declared = [name for name in section.values["defaults"] if name in fields and name not in extra]
    if declared:
        section.put("declared", declared, section.known("answers.prompt.sampling_params")[1])
