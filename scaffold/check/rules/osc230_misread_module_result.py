"""What the module answers is read as something that it is not, or it is called in another way than it wants.

``forward`` takes keyword arguments and returns a tuple of one. A tensor's method on the tuple, a second element, the
``.sample`` of a diffusers output: each raises in the first training step, after the whole rollout. So does a dictionary
that is handed over as it is.

    velocity = module(**model_inputs).float()

Instead: ``velocity = module(**model_inputs)[0].float()``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.guidance_formula import METHOD, NEGATIVE, POSITIVE
from scaffold.check.model.package import Package
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC230"
NAME = "misread-module-result"
SEVERITY = "error"
CHECKLIST = ("T5", "pitfall 39", "pitfall 27")
APPLIES = Applies(non_diffusers=True)
HELP = "take the velocity out of the tuple: module(**model_inputs)[0]"


def check(package: Package) -> Hits:
    """Look at every call of the module in the training step."""
    module = package.training_module
    forward = module.method("forward") if module is not None else None
    if module is None or forward is None or not forward.returns:
        return
    one = all(isinstance(item.value, ast.Tuple) and len(item.value.elts) == 1 for item in forward.returns)
    for adapter in side_of(package, "training").adapters:
        method = adapter.method(METHOD)
        if method is None or method.file not in package.files or len(method.positional) <= NEGATIVE:
            continue
        inputs = {method.positional[POSITIVE], method.positional[NEGATIVE]}
        for call in method.calls:
            if not (isinstance(call.func, ast.Name) and call.func.id == method.positional[0]):
                continue
            for value in call.args:
                if isinstance(value, ast.Name) and value.id in inputs:
                    yield Hit(method.file, value, f"{value.id} is handed over as one argument; unpack it: **{value.id}")
            if one:
                yield from _read(method, call)


def _read(method: FunctionModel, call: ast.Call) -> Hits:
    parent = method.file.index.parent(call)
    if isinstance(parent, ast.Attribute):
        yield Hit(method.file, parent, f"the module answers with a tuple, which has no {parent.attr}")
    elif isinstance(parent, ast.Subscript) and parent.value is call:
        at = method.file.value(parent.slice)
        if isinstance(at, int) and at not in (0, -1):
            yield Hit(method.file, parent, f"the module answers with one value, and element {at} is taken")
        elif isinstance(at, str):
            yield Hit(method.file, parent, f"the module answers with a tuple, which has no key {at!r}")
    elif (
        isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple) and len(parent.targets[0].elts) > 1
    ):
        if not any(isinstance(item, ast.Starred) for item in parent.targets[0].elts):
            yield Hit(method.file, parent.targets[0], "the module answers with one value, and more are unpacked")


FAILING = (
    Example(
        "as a tensor",
        {"training": [("velocity = module(**model_inputs)[0].float()", "velocity = «module(**model_inputs).float»()")]},
    ),
    Example(
        "as an output of diffusers",
        {
            "training": [
                ("velocity = module(**model_inputs)[0].float()", "velocity = «module(**model_inputs).sample».float()")
            ]
        },
    ),
    Example(
        "the second value",
        {
            "training": [
                ("velocity = module(**model_inputs)[0].float()", "velocity = «module(**model_inputs)[1]».float()")
            ]
        },
    ),
    Example(
        "a dictionary as it is",
        {
            "training": [
                ("velocity = module(**model_inputs)[0].float()", "velocity = module(«model_inputs»)[0].float()")
            ]
        },
    ),
)
PASSING = (
    Example("taken out of the tuple"),
    Example(
        "unpacked",
        {
            "training": [
                (
                    "velocity = module(**model_inputs)[0].float()",
                    "(velocity,) = module(**model_inputs)\n        velocity = velocity.float()",
                )
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
