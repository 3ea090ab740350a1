"""``SiluAndMul`` and ``GeluAndMul``: an activation of the first half, times the second."""

from __future__ import annotations

from scaffold.port.layer import Arguments, Built, Site, UnsupportedError

NAMES = ("SiluAndMul", "GeluAndMul", "get_act_and_mul_fn")
_BY_NAME = {
    "'silu'": "silu",
    "'swish'": "silu",
    "'gelu'": "gelu",
    "'geglu'": "gelu",
    "'gelu_pytorch_tanh'": "gelu_tanh",
}


def build(arguments: Arguments, site: Site) -> Built:
    """Return the gated activation.

    Raises:
        UnsupportedError: an activation that is computed, or none of these.
    """
    name = arguments.name
    if name == "SiluAndMul":
        kind = "silu"
    elif name == "GeluAndMul":
        bound = arguments.bind(("approximate",))
        kind = "gelu_tanh" if bound.get("approximate", "'none'").replace('"', "'") == "'tanh'" else "gelu"
    else:
        asked = arguments.bind(("act_fn_name", "compile_native")).get("act_fn_name", "").replace('"', "'")
        if asked not in _BY_NAME:
            raise UnsupportedError(f"the activation {asked}")
        kind = _BY_NAME[asked]
    return Built(((None, f"{site.support('gated_activation', 'GatedActivation')}({kind!r})"),))
