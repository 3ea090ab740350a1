"""The weight of a linear layer is used without calling the layer.

LoRA replaces the layer by one that adds an update when it is called. ``F.linear(x, self.proj.weight)`` still works and
skips that update: the adapter gets no gradient and the rollout, which applies it, follows another model. Under FSDP
the weight outside of the layer's own call may be a shard.

    q = F.linear(x, self.q_proj.weight, self.q_proj.bias)

Instead: ``self.q_proj(x)``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.follow import follow
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.submodules import submodules
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC120"
NAME = "bypassed-linear"
SEVERITY = "error"
CHECKLIST = ("pitfall 34",)
APPLIES = Applies(non_diffusers=True)
HELP = "call the layer"
_ABOUT = {"dtype", "device", "shape", "size", "ndim", "requires_grad", "is_meta", "dim"}


def check(package: Package) -> Hits:
    """Look for weights of linear layers in the forward code."""
    for function in package.forward_functions:
        if function.file not in package.files or function.cls is None or function.name in ("__init__", "__post_init__"):
            continue
        for node in function.nodes(ast.Attribute):
            if (
                not isinstance(node, ast.Attribute)
                or node.attr != "weight"
                or not isinstance(node.value, (ast.Attribute, ast.Name))
            ):
                continue
            layers = [item for item in _layers(function, node.value) if _is_linear(function, item)]
            if not layers:
                continue
            parent = function.file.index.parent(node)
            if isinstance(parent, ast.Attribute) and parent.attr in _ABOUT:
                continue
            name = ast.unparse(layers[0])
            yield Hit(function.file, node, f"{name}.weight is used past the layer, and past its LoRA")


def _layers(function: FunctionModel, value: ast.expr) -> list[ast.Attribute]:
    """Return the attributes that an expression may be: itself, or what a loop over a written list gives it."""
    file = function.file
    value = follow(file, value)
    if isinstance(value, ast.Attribute):
        return [value]
    found: list[ast.Attribute] = []
    for binding in file.scopes.lookup(value.id, value) if isinstance(value, ast.Name) else ():
        parent = file.index.parent(binding.node)
        if not isinstance(parent, (ast.For, ast.comprehension)) or parent.target is not binding.node:
            continue
        listed = follow(file, parent.iter)
        if isinstance(listed, (ast.Tuple, ast.List)):
            found += [item for item in (follow(file, one) for one in listed.elts) if isinstance(item, ast.Attribute)]
    return found


def _is_linear(function: FunctionModel, layer: ast.Attribute) -> bool:
    """Whether ``self.a.b`` is a linear layer: every part on the way is a sub-module of a class of the package."""
    path: list[str] = []
    node: ast.expr = layer
    while isinstance(node, ast.Attribute):
        path.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id != function.bound:
        return False
    cls = function.cls
    for attribute in path[:-1]:
        parts = [part for part in submodules(cls) if part.name == attribute] if cls is not None else []
        cls = parts[0].cls if len(parts) == 1 and not parts[0].repeated else None
    built = [part for part in submodules(cls) if part.name == path[-1]] if cls is not None else []
    return any(part.qualified == "torch.nn.Linear" and not part.repeated for part in built)


FAILING = (
    Example("a product", model=("self.q_proj_gen(latents)", "latents @ «self.q_proj_gen.weight».T"), also="OSC121"),
    Example("of a sub-module", model=("mlp_gen(latents)\n", "mlp_gen(latents) @ «self.self_attn.o_proj_gen.weight»\n")),
)
PASSING = (
    Example("its dtype", model=("q_proj_gen(latents))", "q_proj_gen(latents.to(self.q_proj_gen.weight.dtype)))")),
)
