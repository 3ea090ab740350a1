"""vllm-omni's ``AttentionMetadata``: the parts of it that plain attention uses."""

from __future__ import annotations

from scaffold.port.layer import Arguments, Built, Site, UnsupportedError

NAMES = ("AttentionMetadata",)
FIELDS = ("attn_mask", "full_attn_spans", "extra")


def build(arguments: Arguments, site: Site) -> Built:
    """Return the inputs of attention besides queries, keys and values.

    Raises:
        UnsupportedError: something is given that plain attention knows nothing about.
    """
    bound = arguments.bind((*FIELDS[:1], *arguments.keywords))
    strange = sorted(name for name, text in bound.items() if name not in FIELDS and text != "None")
    if strange:
        raise UnsupportedError(f"attention with {strange[0]}")
    given = ", ".join(f"{name}={bound[name]}" for name in FIELDS if name in bound)
    return Built(((None, f"{site.support('attention', 'AttentionInputs')}({given})"),))
