"""A tensor or text is computed by a statement that keeps it nowhere.

``x.add(y)`` returns the sum and leaves ``x`` as it is; only ``x.add_(y)`` and ``x = x + y`` change it. Written as a
statement of its own the line does nothing: no timestep is added, nothing is masked, no marker is cut off. Everything
runs, and computes something else than was meant.

    latents.add(self.time_embedder(timestep)[:, None])

Instead: ``latents = latents + …``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import resolve
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.ported_code import written_files
from scaffold.check.model.tensors import ARITHMETIC, SHARED, is_function_of_torch, is_tensor
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC148"
NAME = "lost-result"
SEVERITY = "error"
CHECKLIST = ("M7", "M8", "R5")
APPLIES = Applies()
HELP = "assign the result, or leave the line out"
_TEXT = {"removeprefix", "removesuffix", "strip", "lstrip", "rstrip", "lower", "upper"}
_COPYING = {"clone", "new_tensor"}
_WAITING = {"cpu"}  # a way to wait for the device, the result aside


def check(package: Package) -> Hits:
    """Look at statements that are nothing but an expression."""
    for file in written_files(package):
        for statement in file.index.nodes(ast.Expr):
            value = statement.value
            if not isinstance(value, (ast.Call, ast.BinOp, ast.Compare)):
                continue
            function = file.function_around(statement)
            what = _lost(function, value) if function is not None else None
            if what is not None:
                yield Hit(file, value, f"{what}, and nothing keeps the result")


def _lost(function: FunctionModel, value: ast.expr) -> str | None:
    """Return what a statement does without an effect."""
    if isinstance(value, ast.BinOp):
        return "this is computed" if is_tensor(function, value) else None
    if isinstance(value, ast.Compare):
        equal = len(value.ops) == 1 and isinstance(value.ops[0], ast.Eq)
        named = equal and isinstance(value.left, ast.Name) and is_tensor(function, value)
        return "== compares and assigns nothing" if named else None
    if not isinstance(value, ast.Call):
        return None
    of_torch = is_function_of_torch(function, value)
    if of_torch is not None:
        return f"{of_torch}() returns a new tensor"
    target = value.func
    if not isinstance(target, ast.Attribute) or resolve(function.file, value, function.cls) is not None:
        return None
    if function.file.qualified(target) is not None or any(item.arg == "out" for item in value.keywords):
        return None
    own = isinstance(target.value, ast.Name) and target.value.id == function.bound
    name = target.attr
    if name in _TEXT and not own:
        return f"{name}() returns a new text"
    if (name in ARITHMETIC and not own) or (name in SHARED - _WAITING and is_tensor(function, target.value)):
        return f"{name}() returns a new tensor and does not change its own"
    if name.endswith("_") and name.rstrip("_") in ARITHMETIC | SHARED and _is_copy(function, target.value):
        return f"{name}() changes a copy"
    return None


def _is_copy(function: FunctionModel, value: ast.expr) -> bool:
    """Whether a tensor was made for this expression alone."""
    if isinstance(value, ast.BinOp):
        return is_tensor(function, value)
    return any(isinstance(part.func, ast.Attribute) and part.func.attr in _COPYING for part in _chain(value))


def _chain(value: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls of ``a.b().c()``, last first."""
    while isinstance(value, (ast.Call, ast.Attribute)):
        if isinstance(value, ast.Call):
            yield value
            value = value.func
        else:
            value = value.value


_TIME = "        latents = latents + self.time_embedder(timestep.to(context.dtype))[:, None]\n"
_ADDED = "self.time_embedder(timestep.to(context.dtype))[:, None]"


def _example(title: str, line: str, *also: str) -> Example:
    return Example(title, {"model": [(_TIME, f"        {line}\n")]}, also=also)


FAILING = (
    _example("a sum", f"«latents.add({_ADDED})»"),
    _example("a sum, by a function", f"«torch.add(latents, {_ADDED})»"),
    _example("a sum, by an operator", f"«latents + {_ADDED}»"),
    _example("compared", f"«latents == latents + {_ADDED}»"),
    _example("added to a copy", f"«latents.clone().add_({_ADDED})»"),
    Example(
        "a mask that is not applied",
        {"model": [(_TIME, _TIME + "        «latents.masked_fill(latent_pos_ids[..., None] < 0, 0.0)»\n")]},
    ),
    Example("another type", {"model": [(_TIME, _TIME + "        «latents.to(torch.float32)»\n")]}),
    Example(
        "a text",
        {
            "model": [
                ("    raise KeyError(name)\n", '    «name.removeprefix("transformer.")»\n    raise KeyError(name)\n')
            ]
        },
    ),
)
PASSING = (
    _example("in place", f"latents.add_({_ADDED})"),
    Example(
        "of a set",
        {
            "model": [
                ("    raise KeyError(name)\n", "    seen = set()\n    seen.add(name)\n    raise KeyError(name, seen)\n")
            ]
        },
    ),
    Example(
        "a module moves itself",
        {"model": [("        return model.to(torch_dtype)", "        model.to(torch_dtype)\n        return model")]},
    ),
    Example(
        "into a tensor that is there",
        {"model": [(_TIME, _TIME + "        torch.mul(latents, 1.0, out=latents)\n")]},
    ),
    Example("of diffusers", base="diffusers"),
)
