"""A layer replaces a stream where it should add to it.

Every block of a layer adds its result to what it was given. Without the sum the stream is what the last block made of its
normalised input: shapes fit, gradients flow, and from the first layer on the activations are others than the rollout's.
The same where the normalised stream is added to, or the result is subtracted.

    context = context + self.mlp(self.norm(context))
    latents = self.mlp_gen(self.norm_gen(latents))        # latents + … is lost

Instead: add every block's result to the stream, in each of the streams.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.dataflow import reaching, unpacked_at
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.streams import self_call
from scaffold.check.model.submodules import submodules
from scaffold.check.model.sums import Term, kept, terms
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC142"
NAME = "lost-residual"
SEVERITY = "error"
CHECKLIST = ("M8", "pitfall 23")
APPLIES = Applies(non_diffusers=True)
HELP = "add the block's result to the stream: x = x + block(norm(x))"
_BLOCKS = {"mlp", "ff", "ffn", "feed", "feedforward", "attn", "attention", "moe", "experts"}


def check(package: Package) -> Hits:
    """Look at what the layers that are repeated return."""
    layers = {part.cls for part in package.module_tree if part.repeated and not part.of_sequence}
    for cls in layers:
        forward = cls.method("forward") if cls is not None else None
        if forward is not None and forward.file in package.files:
            yield from _layer(forward)


def _layer(forward: FunctionModel) -> Hits:
    kinds = {part.name: part.qualified for part in submodules(forward.cls)} if forward.cls is not None else {}
    values = [item.value for item in forward.returns if item.value is not None]
    if len(values) != 1:
        return
    returned = values[0].elts if isinstance(values[0], (ast.Tuple, ast.List)) else [values[0]]
    sums = [_sum(forward, value) for value in returned]
    whole = [parts for parts in sums if len(parts) > 1 and any(_is_parameter(forward, part.node) for part in parts)]
    blocks = {name for parts in whole for part in parts for name in _blocks(forward, part.node)}
    calls = {call for parts in whole for part in parts if (call := _source(forward, part.node)) is not None}
    for parts in sums:
        if parts not in whole:
            yield from _broken(forward, parts, {kinds.get(name) for name in blocks} - {None}, calls)
        for part in parts if parts in whole else ():
            name = next(iter(_blocks(forward, part.node)), None)
            if part.sign < 0 and name is not None and len(blocks) > 1:
                yield Hit(forward.file, part.node, f"what {name}() computes is subtracted from the stream")


def _sum(forward: FunctionModel, value: ast.expr) -> list[Term]:
    """Return the sum that a stream is; behind a norm that closes the layer, what it is applied to."""
    parts = terms(forward, value)
    only = parts[0].node if len(parts) == 1 else None
    if isinstance(only, ast.Call) and "norm" in (self_call(only) or "") and len(only.args) == 1:
        return terms(forward, only.args[0])
    return parts


def _broken(forward: FunctionModel, parts: list[Term], kinds: set[str | None], calls: set[ast.Call]) -> Iterator[Hit]:
    """Judge a stream that is no sum with what the layer was given."""
    if len(parts) == 1 and isinstance(parts[0].node, ast.Call):
        call = parts[0].node
        name = self_call(call)
        if name is None or "norm" in name or not call.args:
            return
        alike = _kind(forward, name) in kinds
        given = _sum(forward, call.args[0])
        behind = len(given) > 1 and any(_is_parameter(forward, part.node) for part in given)
        block = bool(_BLOCKS & set(name.lower().split("_")))
        if (alike and _of_a_stream(forward, call.args[0])) or (behind and block):
            yield Hit(forward.file, call, f"{name}() replaces the stream that it should be added to")
        return
    for part in parts:
        source = _source(forward, part.node)
        if source is None:
            return
        name = self_call(source) or ""
        if "norm" in name and len(parts) > 1 and kinds:
            yield Hit(
                forward.file, part.node, "the block's result is added to the normalised stream, not to the stream"
            )
            return
        if isinstance(part.node, ast.Name) and source in calls:
            yield Hit(forward.file, part.node, f"what {name}() computes replaces the stream that it should be added to")
            return


def _kind(forward: FunctionModel, name: str) -> str | None:
    found = [part.qualified for part in submodules(forward.cls) if part.name == name] if forward.cls is not None else []
    return found[0] if len(set(found)) == 1 else None


def _of_a_stream(forward: FunctionModel, value: ast.expr) -> bool:
    """Whether a value is, behind norms, a sum with a parameter or a parameter."""
    return any(_is_parameter(forward, part.node) for part in _sum(forward, value)) or any(
        isinstance(part.node, ast.Name) for part in _sum(forward, value)
    )


def _is_parameter(forward: FunctionModel, node: ast.expr) -> bool:
    if not isinstance(node, ast.Name):
        return False
    return [binding.kind for binding in reaching(forward, node)] == ["parameter"]


def _blocks(forward: FunctionModel, node: ast.expr) -> set[str]:
    """Return the sub-modules, norms aside, that a term is what they compute."""
    source = _source(forward, node)
    name = self_call(source) if source is not None else None
    return {name} if name is not None and "norm" not in name else set()


def _source(forward: FunctionModel, node: ast.expr) -> ast.Call | None:
    """Return the call of a sub-module that a term is, or is one of the results of."""
    if isinstance(node, ast.Name):
        bindings = reaching(forward, node)
        place = unpacked_at(forward.file, bindings[0].node) if len(bindings) == 1 else None
        node = kept(place[0]) if place is not None else node
    return node if isinstance(node, ast.Call) and self_call(node) is not None else None


_UPDATES = "        context, latents = context + context_update, latents + latents_update\n"
_LAST = "        return context + self.mlp(context), latents + self.mlp_gen(latents)\n"
_NORMED = (
    "        hidden = self.input_layernorm_gen(latents)\n"
    "        return context + self.mlp(context), {} + self.mlp_gen(hidden)\n"
)
_ONE = """class ToyBlock(nn.Module):
    def __init__(self, config: ToyTrainingConfig):
        super().__init__()
        self.attn = nn.Linear(config.hidden_size, config.hidden_size)
        self.mlp = ToyMLP(config)
        self.norm = RMSNorm(config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm(x))
        {}
        return x


class TimestepEmbedder("""
_ADDED = [
    (
        "        self.norm = RMSNorm(config.hidden_size)\n        self.time",
        "        self.blocks = nn.ModuleList([ToyBlock(config)])\n        self.norm = RMSNorm(config.hidden_size)\n        self.time",
    ),
    (
        "        return (self.llm2vae(",
        "        for block in self.blocks:\n            latents = self._checkpointed_call(block, latents)\n        return (self.llm2vae(",
    ),
]
FAILING = (
    Example(
        "replaced", {"model": [(_LAST, _LAST.replace("latents + self.mlp_gen(latents)", "«self.mlp_gen(latents)»"))]}
    ),
    Example(
        "replaced, under a name",
        {
            "model": [
                (
                    _LAST,
                    "        context = context + self.mlp(context)\n        latents = «self.mlp_gen(latents)»\n        return context, latents\n",
                )
            ]
        },
    ),
    Example(
        "behind attention",
        {"model": [(_UPDATES, "        context, latents = context + context_update, «latents_update»\n")]},
    ),
    Example(
        "added to the normalised stream",
        {
            "model": [
                (
                    _LAST,
                    _NORMED.format("hidden").replace(
                        "hidden = self.input_layernorm_gen(latents)", "hidden = «self.input_layernorm_gen(latents)»"
                    ),
                )
            ]
        },
    ),
    Example(
        "subtracted",
        {"model": [(_LAST, _LAST.replace("latents + self.mlp_gen(latents)", "latents - «self.mlp_gen(latents)»"))]},
    ),
    Example(
        "the only stream",
        {"model": [("class TimestepEmbedder(", _ONE.format("x = «self.mlp(self.norm(x))»")), *_ADDED]},
        also=("OSC403", "OSC408"),
    ),
)
PASSING = (
    Example("both streams are added to"),
    Example("normalised, and added to the stream", {"model": [(_LAST, _NORMED.format("latents"))]}),
    Example(
        "added in place",
        {
            "model": [
                (
                    _LAST,
                    "        context = context + self.mlp(context)\n        latents += self.mlp_gen(latents)\n        return context, latents\n",
                )
            ]
        },
    ),
    Example(
        "weighed",
        {"model": [(_LAST, _LAST.replace("latents + self.mlp_gen(latents)", "latents + 0.5 * self.mlp_gen(latents)"))]},
    ),
    Example(
        "with torch.add",
        {
            "model": [
                (_LAST, _LAST.replace("latents + self.mlp_gen(latents)", "torch.add(latents, self.mlp_gen(latents))"))
            ]
        },
    ),
    Example(
        "normalised behind the sum",
        {"model": [("class TimestepEmbedder(", _ONE.format("x = self.norm(x + self.mlp(x))")), *_ADDED]},
        also=("OSC403", "OSC408"),
    ),
)
