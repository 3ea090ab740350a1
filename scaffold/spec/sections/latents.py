"""[latents]: geometry of one latent token."""

from __future__ import annotations

from scaffold.spec.section import Section

ORDER = 12


def fill(section: Section) -> None:
    """Put channels, patch side and the factor of the image autoencoder."""
    section.fact_or_preset("channels", "answers.vae.channels")
    section.fact_or_preset("downsample", "answers.vae.downsample")
    section.fact_or_preset("patch", "detail.latents.patch")
    section.fact("layout", "answers.latents.layout")
