"""``ColumnParallelLinear``: a plain linear layer."""

from scaffold.port.layer import Arguments, Built, Site
from scaffold.port.layers.linear import needed, single

NAMES = ("ColumnParallelLinear",)
PARAMETERS = (
    "input_size", "output_size", "bias", "gather_output", "skip_bias_add", "params_dtype", "quant_config",
    "output_sizes", "prefix", "return_bias", "disable_tp",
)  # fmt: skip


def build(arguments: Arguments, site: Site) -> Built:
    """Return the plain layer."""
    bound = arguments.bind(PARAMETERS)
    columns, rows = needed(bound, ("input_size", "output_size"))
    return single(bound, rows, columns, site)
