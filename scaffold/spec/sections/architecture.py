"""[architecture]: the training module, from headers, configuration and source."""

from __future__ import annotations

from typing import Any

from scaffold.errors import RefusedError, ScaffoldError
from scaffold.remap import SourceRules
from scaffold.spec.architecture import latent_modules, recognise, table_side
from scaffold.spec.configuration import positive_float, positive_int, text_config, text_config_file
from scaffold.spec.fused import unpacked
from scaffold.spec.section import Section

ORDER = 15

_NEEDED = (
    "input_projection",
    "output_projection",
    "time_embedder",
    "position_embedding",
    "image_position",
    "text_attention",
    "sequence",
    "timestep_max_period",
    "timestep_scale",
    "timestep_order",
)


def fill(section: Section) -> None:
    """Put sizes and kinds of blocks.

    Raises:
        ScaffoldError: the checkpoint lacks what the pipeline loads, or contradicts its configuration.
        RefusedError: a part that the module cannot do without was not recognised.
    """
    headers, origin = section.sources.headers, section.sources.headers_origin
    layers, _ = section.known("detail.layers.path")
    apart = unpacked(headers, SourceRules.of(section.sources.report), text_config(section))
    sizes = recognise(apart, layers[0] if layers and len(layers) == 1 else None)
    for key, value in sizes.items():
        if key not in ("q_size", "kv_size"):
            section.put(key, value, origin)
    section.put("config_file", text_config_file(section), "fact detail.config_files")
    _put_config(section, sizes)
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
    if table is not None:
        section.put("position_table_side", table_side(headers, f"{table}.pos_embed"), origin)
    for key in _NEEDED:
        if section.values.get(key) is None:
            raise RefusedError(
                f"{headers.source}: {key.replace('_', ' ')} of the generation model was not recognised",
                hint="its architecture is not one that templates/blocks can compose",
            )


def _hints(section: Section) -> dict[str, str | None]:
    """Return names that source and preset know, for checkpoints whose shapes leave a choice."""
    hints = {
        role: section.sources.preset.value(section.name, role) for role in ("input_projection", "output_projection")
    }
    hints["time_embedder"], _ = section.known("detail.timestep.attribute")
    return hints


def _put_config(section: Section, sizes: dict[str, Any]) -> None:
    """Put what only the configuration says, and check it against the projections' shapes."""
    config, where = text_config(section), f"{section.sources.headers.source}: {section.values['config_file']}"
    origin = f"configuration of the checkpoint ({section.values['config_file']})"
    heads = section.put("num_attention_heads", positive_int(config, "num_attention_heads", where), origin)
    kv_heads = section.put("num_key_value_heads", positive_int(config, "num_key_value_heads", where), origin)
    section.put("rms_norm_eps", positive_float(config, "rms_norm_eps", where), origin)
    section.put("rope_theta", positive_float(config, "rope_theta", where), origin)
    head_dim = section.put("head_dim", sizes["hidden_size"] // heads, "hidden size over heads")
    seen = sizes["head_dim"] or head_dim
    if heads * head_dim != sizes["q_size"] or kv_heads * head_dim != sizes["kv_size"] or seen != head_dim:
        raise ScaffoldError(
            f"{where} has {heads} heads and {kv_heads} key-value heads, hidden size {sizes['hidden_size']} makes "
            f"them {head_dim} wide, but the projections have {sizes['q_size']} and {sizes['kv_size']} rows"
        )
