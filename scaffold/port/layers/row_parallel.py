"""``RowParallelLinear``: a plain linear layer."""

from scaffold.port.layer import Arguments, Built, Site
from scaffold.port.layers.linear import needed, single

NAMES = ("RowParallelLinear",)
PARAMETERS = (
    "input_size", "output_size", "bias", "input_is_parallel", "skip_bias_add", "params_dtype", "reduce_results",
    "quant_config", "prefix", "return_bias", "disable_tp",
)  # fmt: skip


def build(arguments: Arguments, site: Site) -> Built:
    """Return the plain layer."""
    bound = arguments.bind(PARAMETERS)
    columns, rows = needed(bound, ("input_size", "output_size"))
    return single(bound, rows, columns, site)
