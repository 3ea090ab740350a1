"""What a package is and runs in: [tool], [target], [names], [deploy], [docs]."""

from __future__ import annotations

import os
import re
from datetime import datetime, timezone

from scaffold import __version__
from scaffold.errors import ScaffoldError
from scaffold.spec.section import Section


def fill_tool(section: Section) -> None:
    """Put the tool's version."""
    section.put("version", __version__, "omni-scaffold")


def fill_target(section: Section) -> None:
    """Put the profile's values."""
    profile = section.sources.profile
    for key, value in profile.context(section.sources.names.model).items():
        section.put(key, value, f"contract profile {profile.name}")
    section.put(
        "trainable_params_hook", "configure_trainable_params" in profile.hooks, f"contract profile {profile.name}"
    )


def fill_names(section: Section) -> None:
    """Put the names; the layer's says whether tokens are routed between two sets of weights."""
    names = section.sources.names
    prefix = spelled_like(names.prefix, section.before["upstream"].get("registry_key"))
    routed = "MoT" if section.before.get("architecture", {}).get("experts") else "Decoder"
    for key, value in {
        "model": names.model,
        "package": names.package,
        "prefix": prefix,
        "architecture": names.architecture.replace(names.prefix, prefix),
        "algorithm": names.algorithm,
        "config_class": f"{prefix}TrainingConfig",
        "layer_class": f"{prefix}{routed}Layer",
        "module_class": f"{prefix}ForTraining",
        "training_adapter": f"{prefix}Diffusion",
        "rollout_adapter": f"{prefix}PipelineWithLogProb",
    }.items():
        section.put(key, value, "flag MODEL")
    section.preset("display", prefix)
    section.preset("repository")
    if section.sources.preset.value(section.name, "folder") is not None:
        section.preset("folder")


def spelled_like(prefix: str, key: str | None) -> str:
    """Return a class prefix in the spelling of the pipeline's class, where MODEL begins with the pipeline's name.

    Args:
        prefix: from MODEL: ``Omnigen2``, ``Omnigen2Edit``.
        key: the pipeline's registry key: ``OmniGen2Pipeline``; None where it has none.
    """
    name = re.sub(r"[^A-Za-z0-9]", "", (key or "").removesuffix("Pipeline"))
    return name + prefix[len(name) :] if name[:1].isupper() and prefix.lower().startswith(name.lower()) else prefix


def fill_deploy(section: Section) -> None:
    """Take the preset's section as it is; without one, say whether the engine needs a topology at all."""
    given = section.sources.preset.sections.get(section.name, {})
    for key in given:
        section.preset(key)
    if not given and section.says("detail.engine.class_by_config", True):
        section.put("needed", False, section.known("detail.engine.class_by_config")[1])


CLOCK = "day of rendering"


def fill_docs(section: Section) -> None:
    """Put what was measured, which was not of edits, and the date: the flag's, else today.

    ``SOURCE_DATE_EPOCH`` says which day today is, where it is set.
    """
    for key in ("memory", "step") if section.sources.report.task is None else ():
        if section.sources.preset.value(section.name, key) is not None:
            section.preset(key)
    if section.sources.date is not None:
        section.put("last_updated", section.sources.date, "flag --date")
        return
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    if seconds and not (seconds.isdecimal() and len(seconds) < 12):
        raise ScaffoldError(f"SOURCE_DATE_EPOCH is {seconds!r}", hint="it is a number of seconds, or unset it")
    day = datetime.fromtimestamp(int(seconds), timezone.utc) if seconds else datetime.now().astimezone()
    section.put("last_updated", day.strftime("%m/%d/%Y"), CLOCK)
