"""[architecture]: the training module, from headers, configuration and source."""

from __future__ import annotations

from typing import Any

from scaffold.errors import RefusedError, ScaffoldError
from scaffold.spec.architecture import latent_modules, recognise, table_side
from scaffold.spec.section import Section

ORDER = 15

_CONFIG = ("num_attention_heads", "num_key_value_heads", "rms_norm_eps", "rope_theta")


def fill(section: Section) -> None:
    """Put sizes and kinds of blocks.

    Raises:
        RefusedError: a part that the module cannot do without was not recognised.
    """
    headers, origin = section.sources.headers, section.sources.headers_origin
    sizes = recognise(headers)
    text = _text_config(section)
    for key, value in sizes.items():
        if key not in ("q_size", "kv_size"):
            section.put(key, value, origin)
    for key in _CONFIG:
        section.put(key, text.get(key), f"configuration of the checkpoint ({key})")
    _put_heads(section, sizes)
    section.fact_or_preset("text_attention", "detail.text_attention")
    section.fact_or_preset("image_position", "detail.rope.image_position")
    section.fact_or_preset("sequence", "detail.sequence")
    section.fact_or_preset("timestep_max_period", "detail.timestep.max_period", float)
    section.fact_or_preset("timestep_scale", "detail.timestep.scale", float)
    section.fact("timestep_order", "detail.timestep.order")

    latents = section.before["latents"]
    token = latents["patch"] ** 2 * latents["channels"]
    for key, value in latent_modules(headers, sizes["hidden_size"], token, _hints(section)).items():
        section.put(key, value, origin)
    table = section.fact_or_preset("position_embedding", "detail.position.attribute")
    shape = headers.tensors[f"{table}.pos_embed"].shape if f"{table}.pos_embed" in headers.tensors else None
    section.put("position_table_side", table_side(shape) if shape else None, origin)
    for key in (
        "num_attention_heads",
        "rope_theta",
        "rms_norm_eps",
        "input_projection",
        "output_projection",
        "time_embedder",
        "position_table_side",
        "image_position",
        "text_attention",
        "sequence",
        "timestep_max_period",
        "timestep_scale",
    ):
        if section.values.get(key) is None:
            raise RefusedError(
                f"{headers.source}: {key.replace('_', ' ')} of the generation model was not recognised",
                hint="the checkpoint lacks it, or its architecture is not one that templates/blocks can compose",
            )


def _hints(section: Section) -> dict[str, str | None]:
    """Return names that the preset knows, for checkpoints whose shapes leave a choice."""
    roles = ("input_projection", "output_projection")
    hints = {role: section.sources.preset.value(section.name, role) for role in roles}
    hints["time_embedder"], _ = section.known("detail.timestep.attribute")
    return hints


def _text_config(section: Section) -> dict[str, Any]:
    """Return the language model's configuration, from the file that the pipeline reads the heads from."""
    read, origin = section.known("detail.config_files")
    files = [name for name, entry in (read or {}).items() if "num_attention_heads" in (entry.get("keys") or {})]
    name = section.put("config_file", files[0] if len(files) == 1 else "config.json", origin)
    configs = section.sources.configs
    if name in configs:
        return dict(configs[name])
    inner = section.sources.preset.value("checkpoint", "text_section")
    return dict(configs.get("config.json", {}).get(inner, {}))


def _put_heads(section: Section, sizes: dict[str, Any]) -> None:
    """Check head counts against the projections' shapes; the norm's width gives them where the config is silent."""
    hidden, head_dim = sizes["hidden_size"], sizes["head_dim"]
    heads = section.values["num_attention_heads"]
    if heads is None and head_dim:
        heads = section.put("num_attention_heads", sizes["q_size"] // head_dim, "width of the query norm")
        section.put("num_key_value_heads", sizes["kv_size"] // head_dim, "width of the query norm")
    if heads is None:
        return
    head_dim = hidden // heads
    section.put("head_dim", head_dim, "hidden size over heads")
    kv_heads = section.values["num_key_value_heads"]
    if heads * head_dim != sizes["q_size"] or kv_heads * head_dim != sizes["kv_size"]:
        raise ScaffoldError(
            f"{section.sources.headers.source}: configuration has {heads} heads and {kv_heads} key-value heads of "
            f"{head_dim}, the projections are {sizes['q_size']} and {sizes['kv_size']} wide"
        )
