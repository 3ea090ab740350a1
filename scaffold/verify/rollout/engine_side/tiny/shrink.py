"""Small values for the settings of a model, by what their names say; ratios between them are kept apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TEXT = 32  # width of what a text encoder hands on
EXPERTS, INTERMEDIATE = 4, 64
WORDS = 4096  # more than the tokenizer of a tiny checkpoint has


@dataclass(frozen=True)
class Scale:
    """Width of a model and of its attention heads, its layers, and the most a width has whose name says no more."""

    hidden: int
    heads: int
    head: int
    layers: int = 2
    widest: int = 64


DENOISER = Scale(hidden=96, heads=4, head=24)
ENCODER = Scale(hidden=TEXT, heads=4, head=8)

# What a setting means, by its name; the first that fits decides. A text names a field of ``Scale``.
_RULES: tuple[tuple[str, int | str], ...] = (
    (r"(^|_)moe.*(intermediate|ffn|hidden).*(size|dim)$", 16),
    (r"(intermediate|ffn|feed_forward|mlp)_?(hidden_)?(size|dim|channels)$|^d_ff$", INTERMEDIATE),
    (r"(num|n)_(key_value|kv)_(heads|groups)$|^kv_heads$", "key_value"),
    (r"(^|_)(num|n|encoder|decoder)_?(attention_|attn_)?heads$|^n_heads?$|^heads$", "heads"),
    (r"(^|_)experts_per_tok(en)?$|(^|_)top_?k$", 2),
    (r"(^|_)(num|n)_(routed_|local_)?experts$", EXPERTS),
    (r"(^|_)(num|n)_\w*(refiner|single|double|control)\w*_layers$", 1),
    (
        r"(^|_)(num|n)_(hidden_|encoder_|decoder_|transformer_|attention_)?(layers|blocks)$|(^|_)depth$|^(en|de)coder_layers$",
        "layers",
    ),
    (r"(attention_)?head_(dim|size)$|^d_kv$", "head"),
    (r"^(out_)?(hidden|embed|embedding|model|inner)_?(size|dim)$|^d_model$|^dim$|^width$", "hidden"),
    (
        r"(text|audio|caption|feat|context|cross_attention|joint|pooled|encoder_hidden|llm).*(dim|size|channels|width)$",
        TEXT,
    ),
    (r"^multiple_of$", 16),
    (r"^(freq|frequency|time_embed|timestep_embed)\w*_?(dim|size|channels)$", 32),
    (r"lora_(dim|rank)$", 8),
)


def shrunk(settings: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """Return small values in place of the given ones; what is not a size of the model stays.

    Args:
        settings: value of each setting as the model has it by default.
        scale: of the model; sections of settings have the same.
    """
    found = {name: _small(name, value, settings, scale) for name, value in settings.items()}
    layers = next((v for n, v in found.items() if _rule(n) == "layers" and type(v) is int), scale.layers)
    for name, value in settings.items():
        if isinstance(value, list | tuple) and value and all(type(item) is int for item in value):
            of_head = len(value) > 1 and sum(value) in _heads(settings)
            found[name] = type(value)(_several(name, list(value), layers, scale, of_head))
        elif name.endswith("layer_types") and isinstance(value, list | tuple):
            found[name] = (value * layers)[:layers]
    return found


def small_file(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Small values in place of those of a released file, with a vocabulary as a tiny checkpoint's tokenizer allows."""

    def worded(values: Mapping[str, Any]) -> dict[str, Any]:
        found = {name: worded(value) if isinstance(value, dict) else value for name, value in values.items()}
        return found | ({"vocab_size": WORDS} if type(found.get("vocab_size")) is int else {})

    return shrunk(worded(settings), DENOISER)


def by_name(name: str) -> int | None:
    """The value in a tiny denoiser of a setting of which only the name is known; None where that says nothing."""
    if name == "vocab_size":
        return WORDS
    found = _small(name, 1 << 20, {}, DENOISER) if _rule(name) is not None else None
    return found if type(found) is int else None


def _small(name: str, value: Any, settings: Mapping[str, Any], scale: Scale) -> Any:
    if isinstance(value, dict):
        return shrunk(value, scale) if all(isinstance(key, str) for key in value) else value
    if isinstance(value, bool) or not isinstance(value, int) or (name == "vocab_size" and value == WORDS):
        return value
    rule = _rule(name)
    if rule == "key_value":
        heads = next((v for n, v in settings.items() if _rule(n) == "heads"), None)
        return scale.heads if value == heads else scale.heads // 2
    if isinstance(rule, str):
        return min(value, 1) if value < 2 else int(getattr(scale, rule))
    if rule is not None:
        return min(rule, value) if rule < EXPERTS else rule
    if value > scale.widest and re.search(r"(_|^)(dim|size|channels|rank|features)$", name):
        return scale.widest
    return value


def _heads(settings: Mapping[str, Any]) -> set[int]:
    """The size of an attention head, as settings name it or as width and heads give it."""
    named = {n: v for n, v in settings.items() if type(v) is int and v > 0}
    widths, heads, sizes = ({v for n, v in named.items() if _rule(n) == rule} for rule in ("hidden", "heads", "head"))
    return sizes | {width // number for width in widths for number in heads}


def _several(name: str, values: list[int], layers: int, scale: Scale, of_head: bool) -> list[int]:
    """Sections of a head, layers that have something, or numbers of another kind."""
    if of_head or re.search(r"^axes_dims?(_rope)?$", name):
        return [scale.head // len(values)] * len(values)
    if re.search(r"rope_sections?$", name):
        half, count = scale.head // 2, len(values)
        return [half // count + (1 if i < half % count else 0) for i in range(count)]
    if re.search(r"layers$|ind(ex|ice)e?s$", name):
        return list(range(min(layers, len(values))))
    return values


def _rule(name: str) -> int | str | None:
    return next((value for pattern, value in _RULES if re.search(pattern, name)), None)
