"""A LoRA update is folded into the engine's weights with another factor than training applies it with.

The trained layer computes ``W x + alpha / r * B A x``. A rollout that adds ``B A`` as it is, or times ``alpha``, or
twice, samples from another policy than the one that is trained: ratios are off from the first step behind the first
update on, and grow with it.

    weight.addmm(up, down, alpha=peft_config["lora_alpha"])

Instead: scale by ``lora_alpha / r``, or by ``lora_alpha / sqrt(r)`` where ``use_rslora`` is set.
"""

from __future__ import annotations

import ast
from math import isclose

from scaffold.check.example import Example
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.worked_fold import ALPHA, HOOK, RANK, WorkedFold, worked_folds
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC322"
NAME = "other-lora-scale"
SEVERITY = "error"
CHECKLIST = ("pitfall 18",)
APPLIES = Applies()
HELP = "scale the product of both matrices by lora_alpha / r"


def check(package: Package) -> Hits:
    """Work the fold of a small update out, and compare its factor with that of the trained layer."""
    for adapter in package.rollout_adapters:
        hook = adapter.method(HOOK)
        if hook is None or not package.mentions("lora_alpha"):
            continue
        folds = worked_folds(adapter)
        wrong = [fold for fold in folds if not isclose(fold.factor, ALPHA / RANK, rel_tol=1e-6)]
        if wrong and all(fold.function.file in package.files for fold in wrong):
            function, place = _place(wrong[0])
            text = f"an update of rank {RANK} with lora_alpha {ALPHA} is folded in times {wrong[0].factor:g}"
            yield Hit(function.file, place, f"{text}, the trained layer applies it times {ALPHA / RANK:g}")


def _place(fold: WorkedFold) -> tuple[FunctionModel, ast.AST]:
    """Return where the factor is computed, else where it is used."""
    index = fold.function.file.index
    for node in index.nodes(ast.Constant, fold.function.node):
        if node.value != "lora_alpha":
            continue
        statement = next((outer for outer in index.ancestors(node) if isinstance(outer, ast.stmt)), None)
        if isinstance(statement, ast.Assign):
            return fold.function, statement.value
    return fold.function, fold.node


_HOOK = """    def map_lora_update_to_engine(self, tensors, peft_config):
        names = {name: to_checkpoint_key(name.removeprefix("transformer.")) for name in tensors}
        return {names[name]: tensor for name, tensor in tensors.items()}, peft_config
"""
_FOLD = """    def map_lora_update_to_engine(self, tensors, peft_config):
        rank = int(peft_config["r"])
        scaling = {scaling}
        parameters = dict(self.transformer.named_parameters())
        for name in sorted(tensors):
            if name.endswith(".lora_A.weight"):
                module = name.removesuffix(".lora_A.weight")
                down, up = tensors[name].float(), tensors[f"{{module}}.lora_B.weight"].float()
                weight = parameters[to_checkpoint_key(f"{{module}}.weight")]
                {adds}
        return self._placeholder(peft_config)
"""
_PLAIN = 'peft_config["lora_alpha"] / rank'
_ADDS = "weight.data = weight.data.addmm(up, down, alpha=scaling)"


def _folded(scaling: str = _PLAIN, adds: str = _ADDS) -> dict[str, list[tuple[str, str]]]:
    """Return the changes that make the hook fold."""
    return {"rollout": [(_HOOK, _FOLD.format(scaling=scaling, adds=adds))]}


FAILING = (
    Example("alpha alone", _folded('«float(peft_config["lora_alpha"])»'), also=("OSC134",)),
    Example("upside down", _folded('«rank / peft_config["lora_alpha"]»')),
    Example("the root of the rank", _folded('«peft_config["lora_alpha"] / rank**0.5»')),
    Example("twice", _folded('«peft_config["lora_alpha"] / rank»', "weight.data += scaling * (up @ down) * scaling")),
    Example(
        "not at all",
        _folded('«peft_config["lora_alpha"] / rank»', "weight.data = weight + up @ down"),
        also=("OSC134",),
    ),
    Example("taken away", _folded('«peft_config["lora_alpha"] / rank»', "weight.data -= scaling * (up @ down)")),
    Example(
        "of both matrices", _folded('«peft_config["lora_alpha"] / rank»', _ADDS.replace("down,", "down * scaling,"))
    ),
)
PASSING = (
    Example("handed on to the engine"),
    Example("as it is trained", _folded()),
    Example(
        "rank-stabilised where asked for",
        _folded('peft_config["lora_alpha"] / (rank**0.5 if peft_config.get("use_rslora") else rank)'),
    ),
    Example("scaled before", _folded(adds="weight.data = weight.data + (up * scaling) @ down")),
    Example("scaled afterwards", _folded(adds="weight.data += torch.matmul(up, down).mul(scaling)")),
    Example("by an operator of its own", _folded(adds="self._add(weight, up, down, scaling)")),
)
