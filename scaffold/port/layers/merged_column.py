"""``MergedColumnParallelLinear``: one plain linear layer for each of its parts, as the checkpoint holds them."""

from __future__ import annotations

import ast

from scaffold.port.layer import Arguments, Built, Site
from scaffold.port.layers.linear import dense, needed, pairs, single

NAMES = ("MergedColumnParallelLinear",)
PARAMETERS = (
    "input_size", "output_sizes", "bias", "gather_output", "skip_bias_add", "params_dtype", "quant_config", "prefix",
    "return_bias", "disable_tp",
)  # fmt: skip


def build(arguments: Arguments, site: Site) -> Built:
    """Return the parts, or one layer where the checkpoint holds the parts fused or their sizes are not a list."""
    bound = arguments.bind(PARAMETERS)
    columns, sizes = needed(bound, ("input_size", "output_sizes"))
    listed = _listed(sizes)
    names = site.parts(len(listed)) if listed else None
    if listed is None or names is None:
        return single(bound, f"sum({sizes})", columns, site)
    return Built(
        tuple((name, dense(bound, rows, columns, site)) for name, rows in zip(names, listed, strict=True)), pairs(bound)
    )


def _listed(text: str) -> list[str] | None:
    """Return the entries of ``[a, b]`` or ``[a] * 2``; None for anything else."""
    node = ast.parse(text, mode="eval").body
    if isinstance(node, (ast.List, ast.Tuple)):
        return [ast.unparse(entry) for entry in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List):
        if isinstance(node.right, ast.Constant) and isinstance(node.right.value, int):
            return [ast.unparse(entry) for entry in node.left.elts] * node.right.value
    return None
