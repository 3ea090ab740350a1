"""An embedding of the latents is added to another stream, too late, or not as a sum.

What goes into the first layer is the projected latents, plus the embedding of the noise level, plus that of the position.
Added to the text, or behind the layers, the velocity still depends on the time, through attention or the last projection:
the loss is finite, everything trains, and the rollout computed something else.

    context = context + self.time_embedder(features)[:, None]      # the latents never get it

Instead: add them to the projected latents, in front of the layers; ``scaffold.toml`` records which modules these are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.layer_lists import is_element, lists_of_layers
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded, recorded_list
from scaffold.check.model.streams import self_call
from scaffold.check.model.sums import Term, terms
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC146"
NAME = "embedding-elsewhere"
SEVERITY = "error"
CHECKLIST = ("M7",)
APPLIES = Applies(non_diffusers=True)
HELP = "add it to the projected latents, in front of the layers"
_SECTION = "architecture"


def check(package: Package) -> Hits:
    """Follow the recorded modules to the sum that the layers get."""
    projection = recorded(package, _SECTION, "input_projection")
    embedders = [name for key in ("time_embedder", "position_embedding") if (name := recorded(package, _SECTION, key))]
    module = package.training_module
    forward = module.method("forward") if module is not None else None
    # Where a token stands for the time, its embedding is put into the text.
    if projection is None or forward is None or forward.file not in package.files or not embedders:
        return
    if recorded(package, _SECTION, "timestep_token") or "latents" not in (
        recorded_list(package, _SECTION, "sequence") or []
    ):
        return
    calls: dict[str, list[ast.Call]] = {}
    for call in forward.calls:
        calls.setdefault(self_call(call) or "", []).append(call)
    runs = list(_layer_calls(package, forward))
    if len(calls.get(projection, [])) != 1 or len(runs) != 1:
        return
    loop, given = runs[0]
    sums = [terms(forward, value, loops=True) for value in given]
    projected = calls[projection][0]
    own = [parts for parts in sums if any(_holds(forward, part.node, projected) for part in parts)]
    for name in embedders if len(own) == 1 else ():
        if len(calls.get(name, [])) == 1:
            yield from _judged(forward, calls[name][0], projected, own[0], [s for s in sums if s is not own[0]], loop)


def _judged(
    forward: FunctionModel,
    call: ast.Call,
    projected: ast.Call,
    own: list[Term],
    others: list[list[Term]],
    loop: ast.For,
) -> Hits:
    index = forward.file.index
    name, latents = self_call(call), self_call(projected)
    if index.contains(loop, call):
        yield Hit(forward.file, call, f"{name}() is added in the loop over the layers, not once in front of it")
        return
    for part in own:
        if index.contains(part.node, call):
            if _multiplied(forward, part.node, call, projected):
                yield Hit(forward.file, call, f"what {latents}() computes is multiplied with {name}(), not added to")
            elif part.sign < 0 and part.node is call:
                yield Hit(forward.file, call, f"{name}() is subtracted from the latents")
            return
    # The sum must be plain to its end: a helper may well have added it.
    if not all(isinstance(part.node, ast.Call) and self_call(part.node) is not None for part in own):
        return
    if any(index.contains(part.node, call) for parts in others for part in parts):
        yield Hit(forward.file, call, f"{name}() is added to another stream than what {latents}() computes")
    elif (call.lineno, call.col_offset) > (loop.end_lineno or loop.lineno, loop.end_col_offset or 0):
        yield Hit(forward.file, call, f"{name}() is added behind the layers, which have computed without it")


def _holds(forward: FunctionModel, node: ast.expr, call: ast.Call) -> bool:
    """Whether a term is a call, or what it is made of by products and conversions is."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        sides = (part.node for side in (node.left, node.right) for part in terms(forward, side, loops=True))
        return any(_holds(forward, side, call) for side in sides if side is not node)
    return forward.file.index.contains(node, call)


def _multiplied(forward: FunctionModel, node: ast.expr, one: ast.Call, other: ast.Call) -> bool:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    sides = [[part.node for part in terms(forward, side, loops=True)] for side in (node.left, node.right)]
    return any(
        any(_holds(forward, part, one) for part in first) and any(_holds(forward, part, other) for part in second)
        for first, second in (sides, sides[::-1])
    )


def _layer_calls(package: Package, forward: FunctionModel) -> Iterator[tuple[ast.For, list[ast.expr]]]:
    """Yield the loops over layers with what their one call of a layer is given."""
    lists = lists_of_layers(package)
    for loop in forward.file.index.nodes(ast.For, forward.node):
        for call in forward.file.index.nodes(ast.Call, loop):
            if is_element(forward, call.func, lists):
                yield loop, list(call.args)
            elif call.args and is_element(forward, call.args[0], lists) and self_call(call) is not None:
                yield loop, list(call.args[1:])


_SPEC = """[architecture]
sequence = ["text", "start_of_image", "latents", "end_of_image"]
input_projection = "vae2llm"
time_embedder = "time_embedder"
position_embedding = "latent_pos_embed"
"""
_TIME = "        latents = latents + self.time_embedder(timestep.to(context.dtype))[:, None]\n"
_PLACE = "        latents = latents + self.latent_pos_embed(latent_pos_ids)\n"
_CALLED = "«self.time_embedder(timestep.to(context.dtype))»[:, None]"
_RETURN = "        return (self.llm2vae(self.norm(latents)),)\n"
_LOOP = "            context, latents = self._checkpointed_call(layer, context, latents, key_mask)\n"


def _example(title: str, *changes: tuple[str, str]) -> Example:
    return Example(title, {"model": list(changes), "spec": _SPEC})


FAILING = (
    _example("the time to the text", (_TIME, f"        context = context + {_CALLED}\n")),
    _example(
        "the place to the text", (_PLACE, "        context = context + «self.latent_pos_embed(latent_pos_ids)»\n")
    ),
    _example("in place", (_TIME, f"        context += {_CALLED}\n")),
    _example("behind the layers", (_TIME, ""), (_RETURN, f"        latents = latents + {_CALLED}\n" + _RETURN)),
    _example("in every layer", (_TIME, ""), (_LOOP, f"            latents = latents + {_CALLED}\n" + _LOOP)),
    _example("as a factor", (_TIME, f"        latents = latents * (1 + {_CALLED})\n")),
    _example("subtracted", (_TIME, f"        latents = latents - {_CALLED}\n")),
)
PASSING = (
    _example("both to the latents"),
    _example(
        "in one sum",
        (_TIME, ""),
        (
            _PLACE,
            f"        moment = {_CALLED[1:].replace('»', '')}\n        latents = latents + (moment + self.latent_pos_embed(latent_pos_ids))\n",
        ),
    ),
    _example("in place", (_TIME, f"        latents += {_CALLED[1:].replace('»', '')}\n")),
    Example(
        "nothing is recorded", {"model": [(_TIME, f"        context = context + {_CALLED[1:].replace('»', '')}\n")]}
    ),
)
