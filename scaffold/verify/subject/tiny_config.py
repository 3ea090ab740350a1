"""Shrinks a configuration to a model of a few thousand parameters, with its ratios kept apart."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from scaffold.verify.measured import NotDrivableError

MAX_PARAMETERS = 5_000_000
HIDDEN, HEADS, VOCABULARY = 32, 4, 96

# What a field means, by its name; the first that fits decides. Sizes differ from each other on purpose, so that one
# taken for another does not fit.
_RULES: tuple[tuple[str, Any], ...] = (
    (r"(^|_)(intermediate|ffn|mlp|feed_forward)(_hidden)?_(size|dim)$|^d_ff$", 48),
    (r"(^|_)(num|n)_(key_value|kv)_heads$|^num_kv_heads$", "kv"),
    (r"(^|_)(num|n)_(attention_)?heads$|^n_head$", HEADS),
    (r"(^|_)head_(dim|size)$", HIDDEN // HEADS),
    (r"(^|_)(num|n)_(hidden_)?layers$|(^|_)depth$|^n_layer$", 2),
    (r"(^|_)(hidden|embed|model)_(size|dim)$|^d_model$|^inner_dim$", HIDDEN),
    (r"(^|_)vocab(ulary)?_size$", VOCABULARY),
    (r"(^|_)max_latent_size$|(^|_)max_(num_)?patch(es)?_per_side$", 8),
    (r"(^|_)latent_channels?$|(^|_)z_channels$", 3),
)


def tiny(config_class: Any, given: Any = None) -> Any:
    """Make a tiny instance.

    Args:
        config_class: a dataclass of sizes.
        given: an instance whose other values are kept; None for the defaults.

    Raises:
        NotDrivableError: a size has neither a default nor a name that says what it is.
    """
    values = _values(config_class, given)
    kept = {name: value for name, value in values.items() if value is not dataclasses.MISSING}
    tokens = VOCABULARY - 1
    for name, value in values.items():
        rule = _rule(name)
        if rule == "kv":
            heads = next((kept[other] for other in kept if _rule(other) == HEADS), None)
            full = value is not dataclasses.MISSING and value == heads
            kept[name] = HEADS if full else HEADS // 2
        elif rule is not None:
            continue
        elif re.search(r"_(token_)?ids?$", name) and isinstance(value, int) and value >= VOCABULARY:
            tokens -= 1
            kept[name] = tokens
        elif name.endswith("_token_ids") and isinstance(value, tuple):
            kept[name] = tuple(range(VOCABULARY // 2, VOCABULARY // 2 + 4))  # a fixed text, of a length of its own
        elif value is dataclasses.MISSING:
            raise NotDrivableError(f"{config_class.__name__}.{name} has no default, and its name does not say a size")
    kept |= {name: rule for name in values if isinstance(rule := _rule(name), int)}
    try:
        return config_class(**kept)
    except Exception as error:
        raise NotDrivableError(
            f"{config_class.__name__} cannot be made tiny: {type(error).__name__}: {error}"
        ) from error


def _values(config_class: Any, given: Any) -> dict[str, Any]:
    values = {}
    for field in dataclasses.fields(config_class):
        if not field.init:
            continue
        if given is not None:
            values[field.name] = getattr(given, field.name)
        elif field.default_factory is not dataclasses.MISSING:
            values[field.name] = field.default_factory()
        else:
            values[field.name] = field.default
    return values


def _rule(name: str) -> Any:
    return next((value for pattern, value in _RULES if re.search(pattern, name)), None)


def parameter_count(module_class: Any, config: Any) -> int:
    """Parameters of the model that ``config`` describes; nothing is allocated."""
    import torch

    with torch.device("meta"):
        return sum(parameter.numel() for parameter in module_class(config).parameters())
