"""[latents]: geometry of one latent token."""

from __future__ import annotations

from scaffold.errors import RefusedError
from scaffold.spec.blocks.latent_input_patches import patch_modules
from scaffold.spec.configuration import ROOT, follow, positive_int, root_config
from scaffold.spec.section import Section

_FACTS = {
    "channels": ("answers.vae.channels", "latent_channel"),
    "downsample": ("answers.vae.downsample", "vae_downsample"),
    "patch": ("detail.latents.patch", "latent_patch_size"),
}


def fill(section: Section) -> None:
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
    for key, (fact, field) in _FACTS.items():
        path = paths.get(field)
        value = follow(root, path) if path else None
        if path is not None and value is not None:
            where = f"{section.sources.headers.source}: {ROOT}"
            section.put(key, positive_int({path: value}, path, where), f"configuration of the checkpoint ({path})")
        elif section.fact_or_preset(key, fact) is None:
            raise RefusedError(f"{section.sources.headers.source}: {key} of the latents could not be established")
