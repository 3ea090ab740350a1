"""[checkpoint]: which files training reads, and the key remap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scaffold.remap import KeyMap, Rule, SourceRules, infer_key_map, rendered_table
from scaffold.spec.architecture import parameters
from scaffold.spec.configuration import ROOT
from scaffold.spec.section import Section

ORDER = 40

_TEXT_FIELDS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "rms_norm_eps",
    "rope_theta",
)


def fill(section: Section) -> None:
    """Infer the key map from names and shapes, and from upstream's loader where they do not suffice.

    The preset words the reasons for what is left out.

    Raises:
        ScaffoldError: the checkpoint does not fill the training module.
    """
    headers, origin = section.sources.headers, section.sources.headers_origin
    wanted = parameters(section.before["architecture"], section.before["latents"])
    reasons = section.sources.preset.value("checkpoint", "drop_reasons") or {}
    source = SourceRules.of(section.sources.report)
    _, loader = section.known("answers.checkpoint.renames")
    key_map = infer_key_map(headers, wanted, source=source, drop_reasons=reasons)
    files = sorted({headers.tensors[name].file for name in key_map.apply_all(headers).targets})
    if len(files) < len(headers.files):
        headers = headers.select(files)  # an autoencoder in a file of its own is no business of the training module's
        key_map = infer_key_map(headers, wanted, source=source, drop_reasons=reasons)
    key_map = KeyMap(tuple(replace(rule, origin=_origin(rule, section)) for rule in key_map.rules))
    section.put("rules", key_map.to_data(), f"{origin}; {loader}; each rule says its own origin")
    rows = rendered_table(key_map, headers)
    table = [
        {"source": row.source, "target": row.target or "", "count": row.count, "reason": row.reason, "note": row.note}
        for row in rows
    ]
    section.put("table", table, "the rules applied to the headers, folded by layer")
    section.put("files", files, origin)
    text_file = section.before["architecture"]["config_file"]
    section.put(
        "config_files", {"root": ROOT, "text": text_file, "text_section": _text_section(section)}, _CONFIG_ORIGIN
    )
    section.put("text_config", [{"field": name, "key": name} for name in _TEXT_FIELDS], "default of omni-scaffold")
    section.put("root_config", _root_config(section), f"{_CONFIG_ORIGIN}; preset {section.sources.preset.name}")


def _origin(rule: Rule, section: Section) -> str:
    """Return who made a rule: the loader for what it cites, the preset for reasons that it words, else the headers."""
    if rule.origin is not None:
        return rule.origin
    worded = (section.sources.preset.value("checkpoint", "drop_reasons") or {}).values()
    if rule.op == "drop" and any(rule.reason == reason for reason in worded):
        return f"{section.sources.headers_origin}; preset {section.sources.preset.name}"
    return section.sources.headers_origin


_CONFIG_ORIGIN = "fact detail.config_files"


def _text_section(section: Section) -> str | None:
    value = section.sources.preset.value(section.name, "text_section")
    return value if isinstance(value, str) else None


def _root_config(section: Section) -> list[dict[str, Any]]:
    """Return field, path and default of each size that ``config.json`` may give."""
    read, _ = section.known("detail.config_files")
    defaults = ((read or {}).get(ROOT) or {}).get("keys") or {}
    paths = section.sources.preset.value(section.name, "root_config") or {}
    fallback = {
        "latent_patch_size": section.before["latents"]["patch"],
        "max_latent_size": section.before["architecture"]["position_table_side"],
        "latent_channel": section.before["latents"]["channels"],
        "vae_downsample": section.before["latents"]["downsample"],
    }
    return [
        {"field": field, "path": paths.get(field, ""), "default": defaults.get(paths.get(field), default)}
        for field, default in fallback.items()
    ]
