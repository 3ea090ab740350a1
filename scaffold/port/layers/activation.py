"""``get_act_fn`` and the activations that vllm has classes for."""

from __future__ import annotations

from scaffold.port.layer import Arguments, Built, Site, UnsupportedError

NAMES = ("get_act_fn", "NewGELU", "QuickGELU")
_BY_NAME = {
    "'silu'": "nn.SiLU()",
    "'gelu'": "nn.GELU()",
    "'gelu_new'": "nn.GELU(approximate='tanh')",
    "'gelu_pytorch_tanh'": "nn.GELU(approximate='tanh')",
    "'relu'": "nn.ReLU()",
    "'tanh'": "nn.Tanh()",
}


def build(arguments: Arguments, site: Site) -> Built:
    """Return torch's activation.

    Raises:
        UnsupportedError: an activation that is computed, or none of these.
    """
    if arguments.name == "NewGELU":
        return Built(((None, "nn.GELU(approximate='tanh')"),))
    asked = arguments.bind(("act_fn_name",)).get("act_fn_name", "").replace('"', "'")
    if arguments.name != "get_act_fn" or asked not in _BY_NAME:
        raise UnsupportedError(f"the activation {asked or arguments.name}")
    return Built(((None, _BY_NAME[asked]),))
