"""vllm's ``RMSNorm``; the one of vllm-omni's own layers is ported from its text."""

from scaffold.port.layer import Arguments, Built, Site
from scaffold.port.layers.linear import needed

NAMES = ("RMSNorm",)
CLASS = ("rms_norm", "PlainRMSNorm")
PARAMETERS = ("hidden_size", "eps", "var_hidden_size", "has_weight", "dtype")


def build(arguments: Arguments, site: Site) -> Built:
    """Return the norm of the same arguments."""
    bound = arguments.bind(PARAMETERS)
    needed(bound, ("hidden_size",))
    text = ", ".join(f"{name}={value}" for name, value in bound.items())
    return Built(((None, f"{site.support(*CLASS)}({text})"),))
