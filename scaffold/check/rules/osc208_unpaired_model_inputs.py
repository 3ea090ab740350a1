"""``prepare_model_inputs`` does not return a pair.

The engine unpacks ``model_inputs, negative_model_inputs`` from it. One dictionary alone is unpacked into two of its
keys, and a longer tuple raises; either way the first training step ends in an error far from its cause.

    return {"hidden_states": latents[:, step], …}

Instead: ``return positive, negative``; without guidance, ``return positive, None``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.follow import returned
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC208"
NAME = "unpaired-model-inputs"
SEVERITY = "error"
CHECKLIST = ("T4",)
APPLIES = Applies()
HELP = "return the inputs of both branches; None in the place of the negative one where there is no guidance"


def check(package: Package) -> Hits:
    """Look at every path out of the method."""
    for adapter in package.training_adapters:
        method = adapter.method("prepare_model_inputs")
        contract = method is not None and method.file.path == "verl_omni/pipelines/model_base.py"
        if method is None or contract:
            known = all(
                base.startswith("verl_omni.pipelines.model_base.") or base == "abc.ABC" for base in adapter.external
            )
            if adapter.resolved and known:
                yield Hit(adapter.file, adapter.node, f"{adapter.name} does not define prepare_model_inputs()")
            continue
        if method.is_abstract:
            continue
        if not method.returns:
            yield Hit(method.file, method.node, f"{adapter.name}.prepare_model_inputs() returns nothing")
        for statement, value in zip(method.returns, returned(method), strict=True):
            what = _no_pair(method, value)
            if what is not None:
                yield Hit(
                    method.file,
                    statement.value or statement,
                    f"{adapter.name}.prepare_model_inputs() returns {what}, no pair",
                )


def _no_pair(method: FunctionModel, value: ast.expr) -> str | None:
    """Return what a value certainly is, if it is no pair."""
    if isinstance(value, (ast.Tuple, ast.List)):
        if any(isinstance(item, ast.Starred) for item in value.elts) or len(value.elts) == 2:
            return None
        return f"{len(value.elts)} values"
    if isinstance(value, (ast.Dict, ast.DictComp)):
        return "one dictionary"
    if isinstance(value, ast.Constant):
        return repr(value.value)
    if isinstance(value, ast.Call) and method.file.qualified(value.func) == "dict":
        return "one dictionary"
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        return "one dictionary"
    return None


_RETURN = 'return conditional, {**shared, "text_token_ids": None, "text_attention_mask": None}'
FAILING = (
    Example("one dictionary", {"training": [(_RETURN, "return «conditional»")]}),
    Example("three values", {"training": [(_RETURN, "return «conditional, None, shared»")]}),
    Example(
        "nothing",
        {
            "training": [
                (_RETURN, "conditional.update(shared)"),
                ("def prepare_model_inputs(", "def «prepare_model_inputs»("),
            ]
        },
    ),
    Example("put together", {"training": [(_RETURN, "return «shared | conditional»")]}),
)
PASSING = (
    Example("a pair"),
    Example("no negative branch", {"training": [(_RETURN, "return conditional, None")]}, also=("OSC212",)),
    Example(
        "a pair behind a name",
        {"training": [(_RETURN, "pair = (conditional, dict(shared, text_token_ids=None))\n        return pair")]},
    ),
    Example("of diffusers", base="diffusers"),
)
