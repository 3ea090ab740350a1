"""Reads facts of the autoencoder from a checkpoint's configuration if the source leaves them open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scaffold.inspect.facts import UNKNOWN, Evidence, Fact, fact

if TYPE_CHECKING:
    from scaffold.checkpoint import CheckpointHeaders

AUTOENCODERS = ("vae/config.json",)
_CHANNELS = ("latent_channels", "z_dim", "z_channels")
_STRIDES = ("scale_factor_spatial", "spatial_compression_ratio", "downsample")


def configured(facts: Mapping[str, Fact], headers: CheckpointHeaders) -> dict[str, Fact]:
    """Return the facts that were unknown and that a configuration states."""
    found: dict[str, Fact] = {}

    def put(key: str, value: Any, file: str, kind: type) -> None:
        known = facts.get(f"answers.{key}", UNKNOWN)
        if known.confidence == "unknown" and isinstance(value, kind) and not isinstance(value, bool):
            found[f"answers.{key}"] = fact(value, [Evidence(f"{headers.source}/{file}", 1)])

    for file, config in _stated(headers, AUTOENCODERS):
        put("vae.class", config.get("_class_name"), file, str)
        put("vae.channels", next((config[name] for name in _CHANNELS if name in config), None), file, int)
        put("vae.downsample", _stride(config), file, int)
    return found


def _stated(headers: CheckpointHeaders, files: tuple[str, ...]) -> list[tuple[str, Mapping[str, Any]]]:
    name = next((name for name in files if name in headers.configs), None)
    return [] if name is None else [(name, headers.configs[name])]


def _stride(config: Mapping[str, Any]) -> int | None:
    """Return the pixels per latent side: as stated, or for ``AutoencoderKL`` a factor of two between its blocks."""
    stated = next((config[name] for name in _STRIDES if type(config.get(name)) is int), None)
    blocks = config.get("block_out_channels")
    if stated is None and config.get("_class_name") == "AutoencoderKL" and isinstance(blocks, list) and blocks:
        return int(2 ** (len(blocks) - 1))
    return stated
