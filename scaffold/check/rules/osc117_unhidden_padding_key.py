"""The text's padding mask never reaches attention.

Prompts of one micro-batch are padded to one length. Where no mask hides the padding, image tokens attend to it: the
velocity of a sample depends on its neighbours in the batch, and the rollout, which runs each prompt by itself,
computed another one.

    def forward(self, …, text_attention_mask=None):      # and the mask is used nowhere

Instead: extend the mask over the image tokens and give it to attention, in every branch in which keys are padded.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import argument, resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.streams import assignments, reads
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC117"
NAME = "unhidden-padding-key"
SEVERITY = "error"
CHECKLIST = ("pitfall 8",)
APPLIES = Applies(non_diffusers=True)
HELP = "extend the mask over the image tokens and give it to attention as attn_mask"
SDPA = "torch.nn.functional.scaled_dot_product_attention"


def check(package: Package) -> Hits:
    """Follow the mask from ``forward`` to attention."""
    module = package.training_module
    forward = module.method("forward") if module is not None else None
    if module is None or forward is None or forward.file not in package.files:
        return
    masks = [name for name in forward.parameters if "mask" in name]
    for mask in masks:
        place = forward.parameter_node(mask) or forward.node
        used = any(isinstance(n, ast.Name) and n.id == mask for n in forward.nodes(ast.Name))
        if not used:
            yield Hit(forward.file, place, f"{module.name}.forward() takes {mask} and does not use it")
            return
    functions = [f for f in package.forward_functions if f.file in package.files]
    attentions = [(f, call) for f in functions for call in f.calls if f.file.qualified(call.func) == SDPA]
    if not masks or not attentions:
        return
    hidden = _mask_names(package, functions, set(masks))
    given = [(f, call, argument(call, "attn_mask", 3)) for f, call in attentions]
    if any(value is not None and reads(value, hidden, _is_count) for _, _, value in given):
        yield from _left_out(functions, given)
        return
    if any(value is not None and not _is_none(value) and not _known(f, value) for f, _, value in given):
        return
    place = forward.parameter_node(masks[0]) or forward.node
    yield Hit(forward.file, place, f"{masks[0]} reaches no attention call: padded keys are attended to")


def _left_out(functions: list[FunctionModel], given: list[tuple[FunctionModel, ast.Call, ast.expr | None]]) -> Hits:
    """Look at the calls of a function that hands its parameter on as the mask: one without it attends to padding."""
    for wrapper, _, value in given:
        names = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} if value is not None else set()
        parameter = next((name for name in wrapper.parameters if name in names), None)
        if parameter is None:
            continue
        calls = [(f, call) for f in functions for call in f.calls if resolve(f.file, call, f.cls) is wrapper]
        at = wrapper.positional.index(parameter) if parameter in wrapper.positional else None
        values = [(f, call, argument(call, parameter, at)) for f, call in calls]
        if not any(v is not None and not _is_none(v) for _, _, v in values):
            continue
        for f, call, v in values:
            if (v is None or _is_none(v)) and not _causal(f, call, wrapper):
                yield Hit(
                    f.file, call, f"this call of {wrapper.name}() gets no {parameter}: padded keys are attended to"
                )


def _mask_names(package: Package, functions: list[FunctionModel], start: set[str]) -> set[str]:
    """Return the names and ``.attributes`` of the forward code that hold the mask or something made of it."""
    found = set(start)
    pairs = [pair for function in functions for pair in assignments(function)]
    forwards = [f for f in functions if f.name == "forward"]
    growing = True
    while growing:
        before = len(found)
        found |= {name for name, value in pairs if name not in found and reads(value, found, _is_count)}
        for function in functions:
            for call in function.calls:
                called = resolve(function.file, call, function.cls)
                target = called.method("__init__") if isinstance(called, ClassModel) else called
                targets = [target] if isinstance(target, FunctionModel) else _handed(call, forwards)
                skip = 0 if isinstance(target, FunctionModel) else 1
                for one in targets:
                    names = [name for name in one.positional if name != one.bound]
                    for name, value in zip(names, call.args[skip:], strict=False):
                        if reads(value, found, _is_count):
                            found.add(name)
                    found |= {k.arg for k in call.keywords if k.arg and reads(k.value, found, _is_count)}
        growing = len(found) > before
    return found


def _handed(call: ast.Call, forwards: list[FunctionModel]) -> list[FunctionModel]:
    """Return the methods that a checkpointed call may get to: those that take as many arguments as it hands on."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if "checkpoint" not in name and not (isinstance(call.func, ast.Name) and name in ("layer", "block")):
        return []
    count = len(call.args) - (1 if "checkpoint" in name else 0)
    return [f for f in forwards if len(f.positional) - 1 >= count and len(f.required) - 1 <= count + len(call.keywords)]


def _is_count(node: ast.AST) -> bool:
    """Whether a node only counts: lengths taken from a mask do not hide anything."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("sum", "cumsum", "all", "any", "argmax")
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _known(function: FunctionModel, value: ast.expr) -> bool:
    """Whether everything that a mask is made of stands in the forward code."""
    names = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
    return all(name in function.parameters or function.file.scopes.lookup(name, value) for name in names)


def _causal(function: FunctionModel, call: ast.Call, wrapper: FunctionModel) -> bool:
    """Whether a call is causal, so that padding on the right is out of sight; unknown counts as causal."""
    name = next((n for n in wrapper.parameters if "causal" in n), None)
    if name is None:
        return False
    at = wrapper.positional.index(name) if name in wrapper.positional else None
    value = argument(call, name, at)
    return value is not None and function.file.value(value) is not False


_MASK = "            key_mask = F.pad(text_attention_mask, (0, 2 + latents.shape[1]), value=True)\n"
_SDPA = "F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"
_PARAMETER = "        text_attention_mask: Tensor | None = None,\n    ) ->"
_MARKED = _PARAMETER.replace("text_attention_mask: Tensor | None", "«text_attention_mask»: Tensor | None")
FAILING = (
    Example(
        "not used at all",
        {"model": [("        if text_attention_mask is not None:\n" + _MASK, ""), (_PARAMETER, _MARKED)]},
    ),
    Example(
        "not given to attention", {"model": [(_SDPA, "F.scaled_dot_product_attention(q, k, v)"), (_PARAMETER, _MARKED)]}
    ),
    Example(
        "None is given to attention",
        {"model": [(_SDPA, "F.scaled_dot_product_attention(q, k, v, attn_mask=None)"), (_PARAMETER, _MARKED)]},
    ),
    Example(
        "only counted",
        {
            "model": [
                (_MASK, "            latents = latents + text_attention_mask.sum(dim=1)[:, None, None]\n"),
                (_PARAMETER, _MARKED),
            ]
        },
    ),
)
PASSING = (
    Example("it hides the padding"),
    Example("by another name", {"model": [(_SDPA, "F.scaled_dot_product_attention(q, k, v, mask)")]}),
    Example("another attention", {"model": [(_SDPA, "self.attend(q, k, v, mask)")]}),
    Example("left to diffusers", base="diffusers"),
)
