"""What the scenarios need of a package with a ported denoiser, whose pipeline makes the denoiser's inputs itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scaffold.verify.package import Package, declared_lists
from scaffold.verify.rollout.facts import NotEstablishedError

# Pixels of one of the image's four parts a side, to begin with; a request that fails is made larger.
PIXELS = 16
FRAMES = 5


def filled_guidance(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Scales that VeRL-Omni sends with every request, as the package's launch script sets them."""
    cfg = sections.get("guidance", {})
    defaults = {entry["name"]: entry["default"] for entry in cfg.get("defaults") or []}
    return {entry["name"]: defaults[entry["scale"]] for entry in cfg.get("filled") or [] if entry["scale"] in defaults}


def _fused_names(sections: Mapping[str, Any]) -> list[str]:
    """Layers that a checkpoint may have as one tensor: the parts' own names say it, then the engine's names."""
    stacked = sections.get("checkpoint", {}).get("stacked") or []
    engine = [entry["name"] for entry in sections.get("port", {}).get("fused") or []]
    whole = sections.get("verify", {}).get("whole") or []
    return list(dict.fromkeys([*whole, *engine, *(str(row[0]).strip(".") for row in stacked)]))


def ported_facts(package: Package) -> dict[str, Any]:
    """Return the facts of ``gather_facts`` and, under ``ported``, what a tiny checkpoint is made from.

    Hand-written settings of a tiny model stand in ``[verify]`` of ``scaffold.toml``: ``denoiser`` and ``request`` are
    tables of values, ``components`` one table for each folder of the checkpoint, ``files`` one for each JSON file that
    it has besides, ``tokens`` the special tokens that no source spells out.

    Raises:
        NotEstablishedError: the package says of something that it is still to be written.
    """
    sections = package.spec
    missing = [entry.get("what") or entry.get("key") for entry in sections.get("grade", {}).get("missing") or []]
    if missing:
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise NotEstablishedError(f"still to be written: {missing[0]}{more}")
    cfg, port, names, media = (sections.get(name, {}) for name in ("guidance", "port", "names", "media"))
    defaults = {entry["name"]: entry["default"] for entry in cfg.get("defaults") or []}
    scale = defaults.get(cfg.get("scale"))
    neutral = 1.0 if cfg.get("neutral") is None else float(cfg["neutral"])
    scale = float(scale) if isinstance(scale, int | float) and scale > neutral else None
    given = sections.get("verify", {})
    edit = sections.get("upstream", {}).get("task") is not None
    # Scales that are off by default are on where a request brings images, so that all branches run.
    numbers = {name: value for name, value in defaults.items() if edit and isinstance(value, int | float)}
    others = {name: max(float(value), neutral + 1) for name, value in numbers.items() if name != cfg.get("scale")}
    return {
        "pixels_per_token": PIXELS,
        "noise_level": float(sections.get("recipe", {}).get("noise_level") or 0.7),
        "sizes": None,
        "prompt": {
            "begin": None,
            "end": None,
            "add_special_tokens": False,
            "chat_template": True,
            "column": "prompt_token_ids",
            "around": None,
        },
        "guidance": {
            "name": None if scale is None else cfg.get("scale"),
            "scale": scale,
            "neutral": neutral,
            "others": others,
            "filled": filled_guidance(sections),
        },
        "lora": {
            "targets": declared_lists(package).get("target_modules") or [],
            "sync": sections.get("lora", {}).get("sync"),
        },
        "ported": {
            "model": names.get("model"),
            "entry": port.get("entry"),
            "class": port.get("class"),
            "method": port.get("method") or "forward",
            "fused": port.get("fused") or [],
            "fused_names": _fused_names(sections),
            "reads": bool(port.get("reads") and not port.get("handed")),
            "file": bool(port.get("file")),
            "own": bool(port.get("own")),
            "tokenizer": port.get("tokenizer"),
            "lora": declared_lists(package).get("target_modules") or [],
            "pipeline": sections.get("upstream", {}).get("registry_key"),
            "renames": sections.get("checkpoint", {}).get("renames") or [],
            "frames": FRAMES if sections.get("recipe", {}).get("framed") else None,
            "media": media.get("inputs") or [],
            "references": edit,
            "given": {name: given.get(name) or {} for name in ("denoiser", "components", "request", "files")},
            "tokens": given.get("tokens") or [],
        },
    }
