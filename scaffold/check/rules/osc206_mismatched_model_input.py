"""The dictionaries of ``prepare_model_inputs`` do not fit the parameters of the module's ``forward``.

The engine calls ``module(**model_inputs)``. A key that is not a parameter raises ``TypeError`` in the first training
step, or vanishes in ``**kwargs`` where ``forward`` has them and never looks; a required parameter without a key
raises too. Both branches are checked, because the negative one is only built where guidance needs it.

    return {"hidden_states": x, "timesteps": t, …}, …      # forward(self, hidden_states, timestep, …)

Instead: build exactly the keyword arguments that ``forward`` takes, for each branch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import dotted
from scaffold.check.model.keys import Keys, keys_read
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC206"
NAME = "mismatched-model-input"
SEVERITY = "error"
CHECKLIST = ("T4", "pitfall 27")
APPLIES = Applies(non_diffusers=True)
HELP = "let the keys of both dictionaries be the parameters of forward(), no more and no less"


def check(package: Package) -> Hits:
    """Compare keys and parameters for every adapter whose module is known."""
    for adapter in package.training_adapters:
        module = package.built_module(adapter) or package.training_module
        forward = module.method("forward") if module is not None else None
        method = adapter.method("prepare_model_inputs")
        inputs = package.model_inputs(adapter)
        if module is None or forward is None or method is None or inputs is None or forward.vararg is not None:
            continue
        seen: set[object] = set()
        for keys in inputs:
            for hit in _squeezed(method, keys) if keys is not None else ():
                if hit.at not in seen:
                    seen.add(hit.at)
                    yield hit
        for branch, keys in zip(("positive", "negative"), inputs, strict=True):
            for hit in _compare(branch, keys, forward, method, module.name) if keys is not None else ():
                # What both dictionaries share is written once.
                if hit.at is method.node or hit.at not in seen:
                    seen.add(hit.at)
                    yield hit


def _compare(branch: str, keys: Keys, forward: FunctionModel, method: FunctionModel, module: str) -> Iterator[Hit]:
    accepted = set(forward.parameters)
    if forward.kwarg is not None:
        # What is taken out of **kwargs by name is accepted too; kwargs handed on may accept anything.
        if _handed_on(forward, forward.kwarg):
            return
        accepted |= {read.key for read in keys_read(forward, forward.kwarg)}
    for key, (file, node) in keys.nodes.items():
        if key not in accepted:
            yield Hit(file, node, f"{key!r} of the {branch} inputs is not a parameter of {module}.forward()")
    if keys.complete:
        for name in forward.required:
            if name not in keys.nodes:
                yield Hit(
                    method.file, method.node, f"the {branch} inputs lack {name!r}, which {module}.forward() requires"
                )


def _squeezed(method: FunctionModel, keys: Keys) -> Iterator[Hit]:
    """Look for a tensor of the batch that loses its first dimension where there is one sample."""
    for key, value in keys.values.items():
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            plain = value.func.attr == "squeeze" and not value.args and not value.keywords
            root: ast.expr = value.func.value
            while isinstance(root, (ast.Subscript, ast.Attribute)):
                root = root.value
            tensor = isinstance(root, ast.Name) and root.id in method.positional[2:4]
            if plain and tensor and method.file.index.contains(method.node, value):
                text = f"of one sample, {key!r} loses the batch dimension: squeeze() takes out every dimension of one"
                yield Hit(method.file, value, text, "name the dimension, or leave it as it is")
            value = value.func.value


def _handed_on(function: FunctionModel, name: str) -> bool:
    return any(item.arg is None and dotted(item.value) == name for call in function.calls for item in call.keywords)


FAILING = (
    Example("without a dimension", training=(" latents[:, step]", " «latents[:, step].squeeze()».float()")),
    Example(
        "a return for each case",
        training=[
            ('            "timestep": timesteps', '            «"height"»: 1,\n            "timestep": timesteps'),
            (
                "        return conditional",
                "        if step < 0:\n            return conditional, None\n        return conditional",
            ),
        ],
    ),
    Example("a key that is put in later", training=("        }\n", '        }\n        shared[«"height"»] = 1\n')),
)
PASSING = (
    Example("a dimension by number", training=("latents[:, step],\n", "latents[:, step][:, None].squeeze(1),\n")),
)
