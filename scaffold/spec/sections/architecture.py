"""[architecture]: the training module, from headers, configuration and source."""

from __future__ import annotations

from typing import Any

from scaffold.errors import RefusedError, ScaffoldError
from scaffold.remap import SourceRules
from scaffold.spec.architecture import recognise, table_side, time_embedder
from scaffold.spec.blocks import recognised
from scaffold.spec.configuration import (
    follow,
    positive_float,
    positive_int,
    root_config,
    text_config,
    text_config_file,
)
from scaffold.spec.fused import unpacked
from scaffold.spec.section import Section
from scaffold.spec.sections.request import TIMESTEP_TOKEN

# What the blocks put in front of an image that is made from another: its latents, each at the one place and on the way
# of images, its features likewise on the way of text, then the text.
REFERENCE_PARTS = [
    {"of": "latents", "causal": False, "image": True, "place": "one"},
    {"of": "features", "causal": False, "image": False, "place": "one"},
    {"of": "text", "causal": True, "image": False, "place": "counted"},
]
REFERENCE_WAYS = {
    "image_position": "text_length",
    "text_attention": "causal",
    "prediction": None,
    "timestep_token": None,
    "noise_scale": None,
    "noise_rule": None,
    "latent_input": None,
    "latent_output": None,
    "time": None,
}
_NEEDED = (
    "input_projection",
    "output_projection",
    "time_embedder",
    "image_position",
    "text_attention",
    "sequence",
    "timestep_max_period",
    "timestep_scale",
    "timestep_order",
)


def fill_architecture(section: Section) -> None:
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

    for role in ("latent_input", "latent_output"):
        for key, value in recognised(role, section, sizes["hidden_size"]).items():
            if (key, value) != (role, "linear"):
                section.put(key, value, origin)
    for key, value in time_embedder(headers, _time_path(section)).items():
        section.put(key, value, origin)
    table, _ = section.known("detail.position.attribute")
    if table is not None or section.sources.preset.value(section.name, "position_embedding") is not None:
        table = section.fact_or_preset("position_embedding", "detail.position.attribute")
        section.put("position_table_side", table_side(headers, f"{table}.pos_embed"), origin)
    _put_prediction(section)
    _put_grid(section)
    _put_extras(section)
    _put_noise_rule(section)
    _put_references(section)
    for key in _NEEDED:
        if section.values.get(key) is None:
            raise RefusedError(
                f"{headers.source}: {key.replace('_', ' ')} of the generation model was not recognised",
                hint="its architecture is not one that templates/blocks can compose",
            )


def _time_path(section: Section) -> str | None:
    """Return where the source keeps the timestep embedder, for checkpoints that leave a choice."""
    for name in ("detail.timestep.attribute", "detail.modules.time"):
        path, _ = section.known(name)
        if path is not None:
            return str(path)
    return None


def _put_prediction(section: Section) -> None:
    """Put what the model predicts, where that is not the velocity."""
    if section.says("detail.denoiser.predicts_clean", True):
        section.put("prediction", "clean", section.known("detail.denoiser.predicts_clean")[1])
        section.fact("velocity_floor", "detail.prediction.floor")
        toward, place = section.known("detail.prediction.toward_clean")
        ascending = section.says("answers.scheduler.direction", "ascending")
        if toward is not (ascending or section.says("answers.scheduler.negated", True)):
            raise RefusedError(
                f"the velocity made of the prediction does not fit the direction in which the loop runs ({place})",
                hint="no template renders a step against the velocity",
            )
    if section.says("answers.scheduler.direction", "ascending"):
        section.put("time", "1 - sigma", section.known("answers.scheduler.direction")[1])


def _put_grid(section: Section) -> None:
    """Put positions over a grid and the token that carries the time, where the source has them."""
    if section.says("detail.rope.grid", "fixed"):
        section.put("image_position", "grid_fixed", section.known("detail.rope.grid")[1])
        section.fact("image_origin", "detail.rope.grid_origin")
    if section.says("detail.rope.grid", "sequential"):
        section.put("image_position", "grid_sequential", section.known("detail.rope.grid")[1])
    if section.known("detail.timestep_token.id")[0] is not None:
        origin = section.known("detail.timestep_token.id")[1]
        section.put("timestep_token", TIMESTEP_TOKEN, origin)
        section.put("sequence", ["text", TIMESTEP_TOKEN, "latents"], origin)
    if section.says("detail.time.denoiser", "1 - sigma"):
        section.put("time", "1 - sigma", section.known("detail.time.denoiser")[1])
    scale = section.sources.report.fact("detail.latents.noise_scale")
    if scale.value is not None and scale.value != 1.0 and scale.confidence == "certain":
        section.fact("noise_scale", "detail.latents.noise_scale")


def _put_references(section: Section) -> None:
    """Put where the rollout sees what became of a reference image, where the request brings one.

    Raises:
        RefusedError: the source puts it before the decoder in another form than the blocks do.
    """
    if section.sources.report.task is None:
        return
    prefix, origin = section.known("detail.edit.prefix")
    if prefix["parts"] != REFERENCE_PARTS:
        parts = ", ".join(str(part["of"]) for part in prefix["parts"])
        raise RefusedError(
            f"the blocks of a training module hold latents, then features, then text in front of an image, and the "
            f"decoder is given {parts}, or gives them other places or attention ({origin.rpartition(', ')[2]})"
        )
    ways = {key: section.values.get(key) for key in REFERENCE_WAYS}
    other = [key for key, value in ways.items() if value != REFERENCE_WAYS[key]]
    if not section.says("detail.negative.kind", "empty"):
        raise RefusedError("with words in the branch without the prompt no block holds a reference image")
    if other or not section.values.get("position_embedding") or not section.values.get("experts"):
        what = f"{other[0]} {ways[other[0]]!r}" if other else "this kind of denoiser"
        raise RefusedError(f"with {what.replace('_', ' ')} the blocks of a training module hold no reference images")
    section.put("references", {key: value for key, value in prefix.items() if key != "parts"}, origin)


def _put_noise_rule(section: Section) -> None:
    """Put how the scale of the initial noise follows the image, where the configuration asks for it.

    Raises:
        RefusedError: the configuration asks for an embedding of it that the checkpoint does not have, or the reverse.
    """
    rule = section.sources.preset.value(section.name, "noise_rule")
    root = root_config(section)
    if rule is None:
        return
    embedded = bool(follow(root, rule["embedding"]))
    asked = {name: follow(root, rule["paths"][name]) for name in ("noise_scale", "noise_mode")}
    if not embedded and all(value in (None, rule["neutral"][name]) for name, value in asked.items()):
        return
    name = rule["embedder"] if embedded else ""
    there = any(tensor.endswith(f"{rule['embedder']}.mlp.0.weight") for tensor in section.sources.headers.tensors)
    if embedded != there:
        raise RefusedError(
            f"{section.sources.headers.source}: {rule['embedding']} is {embedded}, but the checkpoint has "
            f"{'a' if there else 'no'} {rule['embedder']}",
            hint="is config.json that of these weights?",
        )
    values = {name: follow(root, path) for name, path in rule["paths"].items()}
    fields = {name: rule["neutral"][name] if value is None else value for name, value in values.items()}
    known = ("none", *rule["following"])
    if fields["noise_mode"] not in known:
        raise RefusedError(f"{rule['paths']['noise_mode']} is {fields['noise_mode']!r}, known are {', '.join(known)}")
    kept = {"following": rule["following"], "rooted": rule["rooted"], "embedder": name, "fields": fields}
    section.put("noise_rule", kept, f"preset {section.sources.preset.name}; configuration of the checkpoint")


def _put_extras(section: Section) -> None:
    """Put kinds and constants that only the preset knows, and only where it has them."""
    for key in ("rotary", "rotary_float32", "rope_theta_grid", "patch_rope_theta", "rope_sections", "norm_parts"):
        if section.sources.preset.value(section.name, key) is not None:
            section.preset(key)


def _put_config(section: Section, sizes: dict[str, Any]) -> None:
    """Put what only the configuration says, and check it against the projections' shapes."""
    config, where = text_config(section), f"{section.sources.headers.source}: {section.values['config_file']}"
    origin = f"configuration of the checkpoint ({section.values['config_file']})"
    heads = section.put("num_attention_heads", positive_int(config, "num_attention_heads", where), origin)
    kv_heads = section.put("num_key_value_heads", positive_int(config, "num_key_value_heads", where), origin)
    section.put("rms_norm_eps", positive_float(config, "rms_norm_eps", where), origin)
    section.put("rope_theta", positive_float(config, "rope_theta", where), origin)
    if "head_dim" in config:
        head_dim = section.put("head_dim", positive_int(config, "head_dim", where), origin)
    else:
        head_dim = section.put("head_dim", sizes["hidden_size"] // heads, "hidden size over heads")
    seen = sizes["head_dim"] or head_dim
    if heads * head_dim != sizes["q_size"] or kv_heads * head_dim != sizes["kv_size"] or seen != head_dim:
        raise ScaffoldError(
            f"{where} has {heads} heads and {kv_heads} key-value heads, {section.provenance['architecture.head_dim']} "
            f"makes them {head_dim} wide, but the projections have {sizes['q_size']} and {sizes['kv_size']} rows"
        )
