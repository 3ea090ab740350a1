"""[names]: files, classes and registry strings, all derived from MODEL."""

from scaffold.spec.section import Section


def fill(section: Section) -> None:
    """Put the names; the layer's says whether tokens are routed between two sets of weights."""
    names = section.sources.names
    routed = "MoT" if section.before.get("architecture", {}).get("experts") else "Decoder"
    for key, value in {
        "model": names.model,
        "package": names.package,
        "prefix": names.prefix,
        "architecture": names.architecture,
        "algorithm": names.algorithm,
        "config_class": f"{names.prefix}TrainingConfig",
        "layer_class": f"{names.prefix}{routed}Layer",
        "module_class": f"{names.prefix}ForTraining",
        "training_adapter": f"{names.prefix}Diffusion",
        "rollout_adapter": f"{names.prefix}PipelineWithLogProb",
    }.items():
        section.put(key, value, "flag MODEL")
    section.preset("display", names.prefix)
    section.preset("repository")
    if section.sources.preset.value(section.name, "folder") is not None:
        section.preset("folder")
