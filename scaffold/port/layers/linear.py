"""What the engine's linear layers share: parameters, pairs of output and bias, attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scaffold.port.layer import Built, Site, UnsupportedError

RENAMES = {
    "output_size": "out_features",
    "input_size": "in_features",
    "output_size_per_partition": "out_features",
    "input_size_per_partition": "in_features",
}


def dense(bound: Mapping[str, str], rows: str, columns: str, site: Site) -> str:
    """Return the plain layer of ``rows`` outputs and ``columns`` inputs.

    Raises:
        UnsupportedError: the layer hands out its bias beside the result instead of adding it.
    """
    skipped = bound.get("skip_bias_add", "False")
    if skipped != "False" and (skipped != "True" or pairs(bound)):
        raise UnsupportedError("a linear layer that returns its bias instead of adding it (skip_bias_add)")
    layer = "nn.Linear" if skipped == "False" else site.support("unbiased_linear", "UnbiasedLinear")
    dtype = bound.get("params_dtype", "None")
    given = "" if dtype == "None" else f", dtype={dtype}"
    return f"{layer}({columns}, {rows}, bias={bound.get('bias', 'True')}{given})"


def single(bound: Mapping[str, str], rows: str, columns: str, site: Site) -> Built:
    """Return one plain layer."""
    return Built(((None, dense(bound, rows, columns, site)),), pairs(bound), renames=RENAMES)


def pairs(bound: Mapping[str, str]) -> bool:
    """Tell whether upstream's layer returns output and bias as a pair.

    Raises:
        UnsupportedError: an expression decides.
    """
    given = bound.get("return_bias", "True")
    if given not in ("True", "False"):
        raise UnsupportedError("a linear layer whose return_bias is computed")
    return given == "True"


def needed(bound: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Return texts of arguments that must be there.

    Raises:
        UnsupportedError: one is missing.
    """
    for name in names:
        if name not in bound:
            raise UnsupportedError(f"no argument {name}")
    return [bound[name] for name in names]


def factor(text: str) -> str:
    """Return an expression that may stand in a product."""
    return text if text.replace("_", "").replace(".", "").isalnum() else f"({text})"
