"""[lora]: what is trained, with and without an adapter."""

from __future__ import annotations

from scaffold.spec.section import Section

ORDER = 50


def fill(section: Section) -> None:
    """Put the targets: the projections that latent tokens go through."""
    architecture = section.before["architecture"]
    suffix = architecture["experts"] or ""
    inner = ["gate_proj", "up_proj", "down_proj"] if architecture["mlp"] == "swiglu" else ["up_proj", "down_proj"]
    targets = [f"{name}_proj{suffix}" for name in "qkvo"] + [f"mlp{suffix}.{name}" for name in inner]
    section.put("targets", targets, "projections of the latent pathway")
    section.put("trainable", [suffix.strip("_")] if suffix else ["layers."], "parameters of the latent pathway")
    section.put("layer_prefixes", ["layers."], "name of the layer list in the training module")
    section.preset("rank", 64)
    section.preset("alpha", 128)
    section.preset("sync", "fold")
