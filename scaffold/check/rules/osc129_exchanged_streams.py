"""Two values are handed on in each other's place.

A layer takes ``(context, latents)`` and is called with ``(latents, context)``, or its two results are unpacked the other
way round. Shapes are the same up to the length, and often the code runs: every stream goes through the other's weights,
and the velocity has nothing to do with the one that the rollout computed.

    latents, context = self._checkpointed_call(layer, context, latents, mask)

Instead: keep the order of the parameters, and of what is returned.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.attention_roles import tiled_heads
from scaffold.check.model.calls import resolve
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.reach import name_called_on_self
from scaffold.check.model.sides import side_of
from scaffold.check.model.streams import root_name
from scaffold.check.model.worked_fold import exchanged_matrices
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC129"
NAME = "exchanged-streams"
SEVERITY = "error"
CHECKLIST = ("M8", "pitfall 23")
APPLIES = Applies(non_diffusers=True)
HELP = "hand each value to the parameter of its name"
_CALL = "context, latents = self._checkpointed_call(layer, context, latents, key_mask)"
_LAYER = "return context + self.mlp(context), latents + self.mlp_gen(latents)"
_NAMED = "context = context + self.mlp(context)\n        latents = latents + self.mlp_gen(latents)\n        return context, latents"
_IDS = "        ids, mask = cls._prompt_token_ids_to_batch(micro_batch, latents.device)\n"
_BEFORE = "    @classmethod\n    def _prompt_token"


def check(package: Package) -> Hits:
    """Compare the names at calls with the parameters, and unpacked results with what is returned."""
    functions = [
        *package.forward_functions,
        *side_of(package, "training").functions,
        *side_of(package, "rollout").functions,
    ]
    for adapter in package.rollout_adapters if package.mentions("lora_") else ():
        for function, node in exchanged_matrices(adapter):
            if function.file in package.files:
                text = "the matrices of a LoRA update are multiplied in each other's place: A B in the place of B A"
                yield Hit(function.file, node, text, "take lora_A for the down and lora_B for the up projection")
    layers = [part.cls for part in package.module_tree if part.repeated and part.cls is not None]
    for function in dict.fromkeys(functions):
        if function.file not in package.files:
            continue
        for where, text in tiled_heads(function):
            yield Hit(function.file, where, text, "use repeat_interleave() on the dimension of the heads")
        for call in function.calls:
            yield from _keywords(function, call)
            called, given = _called(function, call, layers)
            if called is None:
                continue
            yield from _arguments(function, call, called, given)
            yield from _keys(function, call, called, given)
            yield from _results(function, call, called)


def _called(
    function: FunctionModel, call: ast.Call, layers: list[ClassModel]
) -> tuple[FunctionModel | None, list[ast.expr]]:
    """Return what is called, and its positional arguments."""
    target = call.func
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    forwards = {cls.method("forward") for cls in layers}
    if "checkpoint" in name and len(call.args) > 1 and len(forwards) == 1:
        if isinstance(call.args[0], ast.Name) and _of_list(function, call.args[0]):
            return forwards.pop(), call.args[1:]
        return None, []
    found = resolve(function.file, call, function.cls)
    if isinstance(found, ClassModel):
        found = found.method("forward" if name_called_on_self(function, call) else "__init__")
    elif found is None and isinstance(target, ast.Attribute) and name_called_on_self(function, call):
        return None, []
    return found, list(call.args)


def _of_list(function: FunctionModel, name: ast.Name) -> bool:
    """Whether a name runs over a list of ``self``."""
    for binding in function.file.scopes.lookup(name.id, name):
        loop = function.file.index.parent(binding.node)
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Attribute):
            return True
    return False


def _arguments(function: FunctionModel, call: ast.Call, called: FunctionModel, given: list[ast.expr]) -> Hits:
    if any(isinstance(value, ast.Starred) for value in given):
        return
    names = [value.id if isinstance(value, ast.Name) else "" for value in given]
    parameters = called.positional
    for at, name in enumerate(names[: len(parameters)]):
        other = parameters.index(name) if name in parameters else at
        if at < other < len(names) and names[other] == parameters[at]:
            text = f"{name} and {names[other]} are handed to each other's parameter of {called.name}()"
            yield Hit(function.file, given[at], text)


def _keywords(function: FunctionModel, call: ast.Call) -> Hits:
    """Look for ``f(sample=velocity, velocity=sample)``."""
    given = {item.arg: root_name(item.value) for item in call.keywords if item.arg is not None}
    for item in call.keywords:
        other = given.get(item.arg or "")
        if item.arg is not None and other in given and other != item.arg and given[other] == item.arg:
            yield Hit(function.file, item.value, f"{item.arg} and {other} are handed to each other's parameter")
            return


def _keys(function: FunctionModel, call: ast.Call, called: FunctionModel, given: list[ast.expr]) -> Hits:
    """Look for look-ups by keys that speak of each other's parameter: ``f(get("…_range"), get("…_size"))``."""
    words = [_key(value).rpartition("_")[2] for value in given]
    parameters = [name.rpartition("_")[2] for name in called.positional]
    for at, word in enumerate(words[: len(parameters)]):
        other = parameters.index(word) if word in parameters else at
        if at < other < len(words) and words[other] == parameters[at]:
            text = f"{called.positional[at]} and {called.positional[other]} of {called.name}() get each other's value"
            yield Hit(function.file, given[at], text)


def _key(value: ast.expr) -> str:
    found = value.args[0] if isinstance(value, ast.Call) and len(value.args) == 1 else None
    found = value.slice if isinstance(value, ast.Subscript) else found
    return found.value if isinstance(found, ast.Constant) and isinstance(found.value, str) else ""


def _results(function: FunctionModel, call: ast.Call, called: FunctionModel) -> Hits:
    statement = function.file.index.parent(call)
    if not (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Tuple)
    ):
        return
    targets = statement.targets[0].elts
    names = [item.id if isinstance(item, ast.Name) else "" for item in targets]
    for item in called.returns:
        if not isinstance(item.value, ast.Tuple) or len(item.value.elts) != len(names):
            return
        back = [value.id if isinstance(value, ast.Name) else "" for value in item.value.elts]
        for at, name in enumerate(names):
            if name and name in back and back.index(name) != at and name != back[at] and names.count(name) == 1:
                text = f"{called.name}() returns {name} in place {back.index(name) + 1}, and it is unpacked in place {at + 1}"
                yield Hit(function.file, targets[at], text)
                return


_HOOK = """        names = {name: to_checkpoint_key(name.removeprefix("transformer.")) for name in tensors}
        return {names[name]: tensor for name, tensor in tensors.items()}, peft_config
"""
_FOLDED = """        scaling = peft_config["lora_alpha"] / int(peft_config["r"])
        parameters = dict(self.transformer.named_parameters())
        for name in sorted(tensors):
            if name.endswith(".lora_A.weight"):
                module = name.removesuffix(".lora_A.weight")
                down, up = (tensors[f"{module}.lora_{side}.weight"].float() for side in "ORDER")
                weight = parameters[to_checkpoint_key(f"{module}.weight")]
                weight.data = PRODUCT
        return self._placeholder(peft_config)
"""


def _folded(order: str, product: str) -> dict[str, list[tuple[str, str]]]:
    """Return the changes that make the hook of LoRA updates fold."""
    return {"rollout": [(_HOOK, _FOLDED.replace("ORDER", order).replace("PRODUCT", product))]}


_ATTEND = "        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)\n"
_GROUPED = """        groups = q.shape[1] // k.shape[1]
        if mask is None:
            out = F.scaled_dot_product_attention(q, k, v, enable_gqa=groups > 1)
        else:
            k, v = ({} for x in (k, v))
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        out = out.transpose(1, 2).flatten(2)
"""
FAILING = (
    Example(
        "matrices of a LoRA update by each other's name",
        _folded("BA", "«weight.data.addmm(up, down, alpha=scaling)»"),
    ),
    Example("matrices of a LoRA update", _folded("AB", "weight.data + scaling * («down @ up»)")),
    Example("key heads tiled", {"model": [(_ATTEND, _GROUPED.format("«x.repeat(1, groups, 1, 1)»"))]}),
    Example(
        "keywords",
        {
            "rollout": [
                ("model_output=model_output.float()[None],", "model_output=«sample»,"),
                ("            sample=sample,\n", "            sample=model_output.float()[None],\n"),
            ]
        },
    ),
    Example(
        "keys",
        {
            "rollout": [
                (
                    'pick_sde_window(extra_args.get("sde_window_size"), extra_args.get("sde_window_range"), step)',
                    'pick_sde_window(«extra_args.get("sde_window_range")», extra_args.get("sde_window_size"), step)',
                )
            ]
        },
    ),
    Example(
        "arguments",
        {
            "model": [
                (
                    "self._checkpointed_call(layer, context, latents, key_mask)",
                    "self._checkpointed_call(layer, «latents», context, key_mask)",
                )
            ]
        },
    ),
    Example(
        "results", {"model": [(_LAYER, _NAMED), (_CALL, _CALL.replace("context, latents = ", "«latents», context = "))]}
    ),
    Example(
        "of a helper",
        {
            "training": [
                (_IDS, _IDS + "        cls._pair(mask, ids)\n".replace("mask, ids", "«mask», ids")),
                (_BEFORE, "    @classmethod\n    def _pair(cls, ids, mask):\n        return ids, mask\n\n" + _BEFORE),
            ]
        },
    ),
)
PASSING = (
    Example("matrices of a LoRA update in their order", _folded("AB", "weight.data + scaling * (up @ down)")),
    Example("key heads repeated", {"model": [(_ATTEND, _GROUPED.format("x.repeat_interleave(groups, dim=1)"))]}),
    Example("in their order"),
    Example(
        "under names of their own",
        {
            "model": [
                (
                    _CALL,
                    _CALL.replace("context, latents = ", "text, image = ")
                    + "\n            context, latents = text, image",
                )
            ]
        },
    ),
    Example(
        "by keyword",
        {
            "training": [
                (_IDS, _IDS + "        cls._pair(mask=mask, ids=ids)\n"),
                (_BEFORE, "    @classmethod\n    def _pair(cls, ids, mask):\n        return ids, mask\n\n" + _BEFORE),
            ]
        },
    ),
)
