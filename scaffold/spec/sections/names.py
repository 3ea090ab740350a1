"""[names]: files, classes and registry strings, all derived from MODEL."""

from __future__ import annotations

import re

from scaffold.spec.section import Section


def fill(section: Section) -> None:
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
