"""[latents]: geometry of one latent token."""

from __future__ import annotations

from scaffold.errors import RefusedError
from scaffold.spec.configuration import ROOT, follow, positive_int, root_config
from scaffold.spec.section import Section

ORDER = 12

_FACTS = {
    "channels": ("answers.vae.channels", "latent_channel"),
    "downsample": ("answers.vae.downsample", "vae_downsample"),
    "patch": ("detail.latents.patch", "latent_patch_size"),
}


def fill(section: Section) -> None:
    """Put channels, patch side and the factor of the image autoencoder; the checkpoint's own values come first.

    Raises:
        ScaffoldError: ``config.json`` is missing, or gives something that is no positive integer.
        RefusedError: neither checkpoint nor source gives a value.
    """
    root = root_config(section)
    paths = section.sources.preset.value("checkpoint", "root_config") or {}
    for key, (fact, field) in _FACTS.items():
        path = paths.get(field)
        value = follow(root, path) if path else None
        if path is not None and value is not None:
            where = f"{section.sources.headers.source}: {ROOT}"
            section.put(key, positive_int({path: value}, path, where), f"configuration of the checkpoint ({path})")
        elif section.fact_or_preset(key, fact) is None:
            raise RefusedError(f"{section.sources.headers.source}: {key} of the latents could not be established")
    section.fact("layout", "answers.latents.layout")
