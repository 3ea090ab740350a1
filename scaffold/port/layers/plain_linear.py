"""``ColumnParallelLinear``, ``RowParallelLinear`` and ``ReplicatedLinear``: each a plain linear layer."""

from __future__ import annotations

from scaffold.port.layer import Arguments, Built, Site
from scaffold.port.layers.linear import needed, single

PARAMETERS = {
    "ColumnParallelLinear": (
        "input_size", "output_size", "bias", "gather_output", "skip_bias_add", "params_dtype", "quant_config",
        "output_sizes", "prefix", "return_bias", "disable_tp",
    ),
    "RowParallelLinear": (
        "input_size", "output_size", "bias", "input_is_parallel", "skip_bias_add", "params_dtype", "reduce_results",
        "quant_config", "prefix", "return_bias", "disable_tp",
    ),
    "ReplicatedLinear": (
        "input_size", "output_size", "bias", "skip_bias_add", "params_dtype", "quant_config", "prefix", "return_bias",
        "disable_tp",
    ),
}  # fmt: skip
NAMES = tuple(PARAMETERS)


def build(arguments: Arguments, site: Site) -> Built:
    """Return the plain layer."""
    bound = arguments.bind(PARAMETERS[arguments.name])
    columns, rows = needed(bound, ("input_size", "output_size"))
    return single(bound, rows, columns, site)
