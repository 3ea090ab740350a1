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
from scaffold.check.model.attention_masks import MaskPaths, Step
from scaffold.check.model.calls import argument, attribute_name, has_unpacking, resolve
from scaffold.check.model.extended_masks import extended_in_front
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.held_masks import HeldMasks, held_masks, is_count
from scaffold.check.model.package import Package
from scaffold.check.model.reach import reachable
from scaffold.check.model.streams import reads
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC117"
NAME = "unhidden-padding-key"
SEVERITY = "error"
CHECKLIST = ("pitfall 8",)
APPLIES = Applies(non_diffusers=True)
HELP = "extend the mask over the image tokens and give it to attention as attn_mask"
_PADS = {"pad_sequence", "pad"}
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
    yield from _never_given(package, masks)
    functions = [f for f in package.forward_functions if f.file in package.files]
    attentions = [(f, call) for f in functions for call in f.calls if f.file.qualified(call.func) == SDPA]
    if not masks or not attentions:
        return
    held = held_masks(functions, forward, masks)
    yield from _misused(functions, held)
    yield from (Hit(f.file, where, text, help) for f, where, text, help in extended_in_front(functions, forward, held))
    layers = {part.cls.method("forward") for part in package.module_tree if part.repeated and part.cls is not None}
    entries = {(forward, mask) for mask in masks if "pad" not in mask}
    yield from _on_the_way(MaskPaths(functions, entries, layers.pop() if len(layers) == 1 else None), attentions)
    given = [(f, call, argument(call, "attn_mask", 3)) for f, call in attentions]
    if any(value is not None and reads(value, held.of(f), is_count) for f, _, value in given):
        yield from _left_out(functions, given)
        return
    if any(value is not None and not _is_none(value) and not _known(f, value) for f, _, value in given):
        return
    if any(has_unpacking(call) for _, call in attentions):
        return  # the mask may be in what is unpacked
    place = forward.parameter_node(masks[0]) or forward.node
    yield Hit(forward.file, place, f"{masks[0]} reaches no attention call: padded keys are attended to")


def _misused(functions: list[FunctionModel], held: HeldMasks) -> Hits:
    """Look for masks that are turned round, or that hide the image tokens they are extended by."""
    for function in functions:
        names = held.of(function)
        for call in function.calls:
            if function.file.qualified(call.func) != "torch.nn.functional.pad" or not call.args:
                continue
            value = argument(call, "value", 3)
            hides = value is None or function.file.value(value) in (False, 0, 0.0)
            if hides and reads(call.args[0], names, is_count) and "mask" in ast.unparse(call.args[0]):
                yield Hit(function.file, call, "what the mask is extended by is hidden from attention; give value=True")
        for node in function.nodes(ast.UnaryOp):
            if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.Invert):
                continue
            around = [outer for outer in function.file.index.ancestors(node) if isinstance(outer, ast.Call)]
            fills = any("fill" in ast.unparse(outer.func) or "where" in ast.unparse(outer.func) for outer in around)
            statement = next((o for o in function.file.index.ancestors(node) if isinstance(o, ast.stmt)), None)
            kept = isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is node
            target = ast.unparse(statement).partition("=")[0] if statement is not None else ""
            if kept and not fills and "pad" not in target and reads(node.operand, names, is_count) and _once(functions):
                yield Hit(
                    function.file, node, "the mask is turned round: real tokens are hidden, padding is attended to"
                )


def _on_the_way(paths: MaskPaths, attentions: list[tuple[FunctionModel, ast.Call]]) -> Hits:
    """Look for masks that get to attention as numbers, which are added to the scores, or turned round."""
    for function, call in attentions:
        value = argument(call, "attn_mask", 3)
        if value is None:
            continue
        query = {ast.unparse(part) for part in call.args[:3]}
        query |= {ast.unparse(item.value) for item in call.keywords if item.arg in ("query", "key", "value")}
        for way in paths.steps(function, value, query):
            if not any(step.kind in ("bool", "seen") for step in way):
                continue  # perhaps it comes in as a bias
            last = next((step for step in way if step.kind in ("float", "bool")), None)
            if last is not None and last.kind == "float":
                text = "as numbers the mask is added to the scores: padded keys are attended to"
                yield Hit(last.function.file, last.node, text, "leave it boolean: true where a key may be attended to")
            turned = [step for step in way if step.kind == "not"]
            if len(turned) == 1 and _in_call(turned[0], call):
                text = "the mask is turned round: real tokens are hidden, padding is attended to"
                yield Hit(turned[0].function.file, turned[0].node, text)


def _in_call(step: Step, call: ast.Call) -> bool:
    return step.function.file.index.contains(call, step.node)


def _once(functions: list[FunctionModel]) -> bool:
    """Whether masks are inverted at one place only, and no additive mask is made."""
    inverted = [
        n
        for f in functions
        for n in f.nodes(ast.UnaryOp)
        if isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.Invert)
    ]
    fills = any(
        attribute_name(call) in ("masked_fill", "masked_fill_", "logical_not") for f in functions for call in f.calls
    )
    return len(inverted) == 1 and not fills


def _never_given(package: Package, masks: list[str]) -> Hits:
    """Look for adapters that pad the text and give the module no mask in any branch."""
    for adapter in package.training_adapters:
        method = adapter.method("prepare_model_inputs")
        branches = package.model_inputs(adapter)
        if len(masks) != 1 or method is None or method.file not in package.files or branches is None:
            continue
        pads = any(attribute_name(call) in _PADS for f in reachable(method, adapter) for call in f.calls)
        keys = [branch for branch in branches if branch is not None and branch.complete]
        given = [branch for branch in keys if masks[0] in branch.nodes]
        given = [branch for branch in given if not _is_none(branch.values.get(masks[0], ast.Constant(value=0)))]
        if pads and len(keys) == 2 and not given:
            text = f"the text is padded, and no branch gives the module {masks[0]}"
            yield Hit(method.file, method.node, text, "give the conditional branch the mask of its real tokens")


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
            if (v is None or _is_none(v)) and not has_unpacking(call) and not _causal(f, call, wrapper):
                yield Hit(
                    f.file, call, f"this call of {wrapper.name}() gets no {parameter}: padded keys are attended to"
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
FAILING: tuple[Example, ...] = (
    Example(
        "turned round",
        {
            "model": [
                (_MASK, "            key_mask = «~F.pad(text_attention_mask, (0, 2 + latents.shape[1]), value=True)»\n")
            ]
        },
    ),
    Example(
        "image tokens hidden",
        {"model": [(_MASK, "            key_mask = «F.pad(text_attention_mask, (0, 2 + latents.shape[1]))»\n")]},
    ),
    Example(
        "ones in its place",
        {
            "model": [
                (_MASK, _MASK.replace("F.pad(text_attention_mask,", "F.pad(torch.ones_like(text_attention_mask),")),
                (_PARAMETER, _MARKED),
            ]
        },
    ),
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
        "an object built from it keeps no mask",
        {
            "model": [
                (
                    "class ToyForTraining(",
                    "class Layout:\n    def __init__(self, mask: Tensor | None):\n        self.key_mask: Tensor | None = None\n"
                    "        self.first = 0 if mask is None else mask.sum(dim=1)\n\n\nclass ToyForTraining(",
                ),
                ("        key_mask = None\n", "        layout = Layout(text_attention_mask)\n"),
                ("        if text_attention_mask is not None:\n" + _MASK, ""),
                ("(layer, context, latents, key_mask)", "(layer, context, latents, layout.key_mask)"),
                (_PARAMETER, _MARKED),
            ]
        },
    ),
    Example(
        "given in no branch",
        {
            "training": [
                ('"text_token_ids": ids, "text_attention_mask": mask}', '"text_token_ids": ids}'),
                ("    def prepare_model_inputs(", "    def «prepare_model_inputs»("),
            ]
        },
        also=("OSC134",),
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
_KEYS = "key_mask[:, None, None, :]"
FAILING += (
    Example("as numbers, in the queries' type", {"model": [(_KEYS, f"«{_KEYS}.to(q.dtype)»")]}),
    Example("as numbers, at attention", {"model": [(_SDPA, _SDPA.replace("=mask", "=«mask.float()»"))]}),
    Example(
        "as numbers, where it is extended",
        {"model": [(_MASK, _MASK.replace("(text_attention_mask,", "(«text_attention_mask.to(torch.float32)»,"))]},
    ),
    Example(
        "extended in front",
        {
            "model": [
                (
                    _MASK,
                    _MASK.replace(
                        "F.pad(text_attention_mask, (0, 2 + latents.shape[1]), value=True)",
                        "«F.pad(text_attention_mask, (2 + latents.shape[1], 0), value=True)»",
                    ),
                )
            ]
        },
    ),
    Example(
        "extended in front, by ones",
        {
            "model": [
                (
                    _MASK,
                    "            seen = text_attention_mask.new_ones(batch, 2 + latents.shape[1])\n            key_mask = «torch.cat((seen, text_attention_mask), dim=1)»\n",
                )
            ]
        },
    ),
    Example("turned round at attention", {"model": [(_SDPA, _SDPA.replace("=mask", "=«~mask»"))]}),
)
_HELPER = (
    "class ToyForTraining(",
    'def _options(mask):\n    return {} if mask is None else {"attn_mask": mask}\n\n\nclass ToyForTraining(',
)
PASSING = (
    Example(
        "in keywords that are unpacked",
        {"model": [(_SDPA, "F.scaled_dot_product_attention(q, k, v, **_options(mask))"), _HELPER]},
    ),
    Example(
        "extended by ones",
        {
            "model": [
                (
                    _MASK,
                    "            seen = text_attention_mask.new_ones(batch, 2 + latents.shape[1])\n            key_mask = torch.cat((text_attention_mask, seen), dim=1)\n",
                )
            ]
        },
    ),
    Example(
        "extended in front of what stands in front of it",
        {
            "model": [
                ("        ids = [] if text_token_ids is None else [text_token_ids]\n", "        ids = []\n"),
                (
                    "marker, device=device))\n",
                    "marker, device=device))\n        ids += [] if text_token_ids is None else [text_token_ids]\n",
                ),
                (
                    "torch.cat((self.q_proj(context), self.q_proj_gen(latents)), dim=1)",
                    "torch.cat((self.q_proj_gen(latents), self.q_proj(context)), dim=1)",
                ),
                (
                    "torch.cat((self.k_proj(context), self.k_proj_gen(latents)), dim=1)",
                    "torch.cat((self.k_proj_gen(latents), self.k_proj(context)), dim=1)",
                ),
                (
                    "torch.cat((self.v_proj(context), self.v_proj_gen(latents)), dim=1)",
                    "torch.cat((self.v_proj_gen(latents), self.v_proj(context)), dim=1)",
                ),
                ("        length = context.shape[1]\n", "        length = latents.shape[1]\n"),
                (
                    "return self.o_proj(out[:, :length]), self.o_proj_gen(out[:, length:])",
                    "return self.o_proj(out[:, length:]), self.o_proj_gen(out[:, :length])",
                ),
                (_MASK, _MASK.replace("(0, 2 + latents.shape[1])", "(2 + latents.shape[1], 0)")),
            ]
        },
    ),
    Example("boolean again", {"model": [(_KEYS, f"{_KEYS}.float().to(torch.bool)")]}),
    Example(
        "numbers that hide",
        {"model": [(_KEYS, f"torch.where({_KEYS}, 0.0, float('-inf'))")]},
    ),
    Example(
        "filled in place",
        {
            "model": [
                (
                    f"{_KEYS}\n",
                    f"{_KEYS}.float()\n        if mask is not None:\n            mask.masked_fill_(mask == 0, -1e9)\n",
                )
            ]
        },
    ),
    Example("a bias made of it", {"model": [(_KEYS, f"(1.0 - {_KEYS}.float()) * -1e9")]}),
    Example("it hides the padding"),
    Example("by another name", {"model": [(_SDPA, "F.scaled_dot_product_attention(q, k, v, mask)")]}),
    Example(
        "kept in an object",
        {
            "model": [
                (
                    "class ToyForTraining(",
                    "class Layout:\n    def __init__(self, mask: Tensor | None):\n        self.key_mask = mask\n\n\n"
                    "class ToyForTraining(",
                ),
                ("        key_mask = None\n", "        layout = Layout(text_attention_mask)\n"),
                ("        if text_attention_mask is not None:\n" + _MASK, ""),
                ("(layer, context, latents, key_mask)", "(layer, context, latents, layout.key_mask)"),
            ]
        },
    ),
    Example("another attention", {"model": [(_SDPA, "self.attend(q, k, v, mask)")]}, also=("OSC154",)),
    Example("left to diffusers", base="diffusers"),
)
