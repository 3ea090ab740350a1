"""``get_rope``: rotary positions of a language model, as long as nothing scales them."""

from __future__ import annotations

from scaffold.port.layer import Arguments, Built, Site, UnsupportedError

NAMES = ("get_rope",)
PARAMETERS = ("head_size", "max_position", "is_neox_style", "rope_parameters", "dtype")


def build(arguments: Arguments, site: Site) -> Built:
    """Return a module that computes them at each call.

    Raises:
        UnsupportedError: chunks of attention, or positional arguments whose order differs by version.
    """
    if len(arguments.positional) > 2 or "dual_chunk_attention_config" in arguments.keywords:
        raise UnsupportedError("rotary positions in chunks, or with positional arguments")
    bound = arguments.bind(PARAMETERS)
    given = ", ".join(f"{name}={bound[name]}" for name in PARAMETERS[:-1] if name in bound)
    return Built(((None, f"{site.support('rotary', 'RotaryPositions')}({given})"),))
