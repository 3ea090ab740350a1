"""The activation of a gated feed-forward block is applied to the wrong branch.

The block is ``down(silu(gate(x)) * up(x))``. With the branches exchanged shapes fit, every weight is used, the output
is finite and wrong; a model that generates with such a block makes blurred noise, one that trains learns around it.

    return self.down_proj(F.silu(self.up_proj(x)) * self.gate_proj(x))

Instead: ``F.silu(self.gate_proj(x)) * self.up_proj(x)``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.follow import follow
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.streams import self_call
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC128"
NAME = "gate-and-up-exchanged"
SEVERITY = "error"
CHECKLIST = ("M8", "pitfall 23")
APPLIES = Applies(non_diffusers=True)
HELP = "apply the activation to the gate: silu(gate(x)) * up(x)"
_ACTIVATIONS = ("silu", "gelu", "swish", "relu", "act", "activation")


def check(package: Package) -> Hits:
    """Look at products of an activated and a plain branch in the forward code."""
    for function in package.forward_functions:
        if function.file not in package.files:
            continue
        for product in function.nodes(ast.BinOp):
            if not isinstance(product, ast.BinOp) or not isinstance(product.op, ast.Mult):
                continue
            for active, plain in ((product.left, product.right), (product.right, product.left)):
                activated = follow(function.file, active)
                branch = _activated(function, activated)
                other = _branch(function, plain)
                if branch is not None and other is not None and "up" in branch and "gate" in other:
                    yield Hit(function.file, activated, f"the activation is applied to {branch}, not to {other}")


def _activated(function: FunctionModel, node: ast.expr) -> str | None:
    """Return the layer under an activation: ``silu(self.gate(x))`` gives ``gate``."""
    if not isinstance(node, ast.Call) or not node.args:
        return None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if not any(word in name.lower() for word in _ACTIVATIONS):
        return None
    return _branch(function, node.args[0])


def _branch(function: FunctionModel, node: ast.expr) -> str | None:
    """Return the words of the layer that a value comes from."""
    found = follow(function.file, node)
    name = self_call(found) if isinstance(found, ast.Call) else None
    return None if name is None or not {"gate", "up"} & set(name.lower().split("_")) else name


_LINE = "F.silu(self.gate_proj(x)) * self.up_proj(x)"
FAILING = (
    Example("exchanged", {"model": [(_LINE, "«F.silu(self.up_proj(x))» * self.gate_proj(x)")]}),
    Example("exchanged, the other order", {"model": [(_LINE, "self.gate_proj(x) * «F.silu(self.up_proj(x))»")]}),
    Example(
        "through names",
        {
            "model": [
                (
                    "        return self.down_proj(" + _LINE + ")",
                    "        active = «F.silu(self.up_proj(x))»\n        plain = self.gate_proj(x)\n"
                    "        return self.down_proj(active * plain)",
                )
            ]
        },
    ),
)
PASSING = (
    Example("the gate is activated"),
    Example("the other order", {"model": [(_LINE, "self.up_proj(x) * F.silu(self.gate_proj(x))")]}),
)
