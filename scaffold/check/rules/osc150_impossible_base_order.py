"""The bases of a class cannot be put in order: one stands before a class that inherits it.

Python looks a method up in a class before the bases of that class. ``class Model(nn.Module, Base)``, where ``Base`` is a
module itself, asks for the opposite: ``TypeError: Cannot create a consistent method resolution order`` as soon as the
file is imported, and with it the whole package is missing from the registry.

    class ToyForTraining(nn.Module, NonDiffusersModelBase): …

Instead: name the heir only, or name it first.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC150"
NAME = "impossible-base-order"
SEVERITY = "error"
CHECKLIST = ("M2", "R2")
APPLIES = Applies(diffusion=None)
HELP = "name the heir only, or name it first"
_MODULE = {"torch.nn.Module", "torch.nn.modules.module.Module"}
_CONTRACT = {"NonDiffusersModelBase"}


def check(package: Package) -> Hits:
    """Look at classes with several bases, for one that stands before its own heir, or twice."""
    for cls in package.classes:
        nodes = cls.node.bases
        if len(nodes) < 2 or any(isinstance(node, ast.Starred) for node in nodes):
            continue
        for at, later in enumerate(nodes[1:], start=1):
            earlier = next((one for one in range(at) if _inherits(cls, at, one)), None)
            if earlier is not None:
                first, second = ast.unparse(nodes[earlier]), ast.unparse(later)
                text = (
                    f"{first} stands twice" if _same(cls, at, earlier) else f"{first} stands before {second}, its heir"
                )
                yield Hit(cls.file, nodes[earlier], f"{text}: the class cannot be made")
                break


def _same(cls: ClassModel, at: int, other: int) -> bool:
    return cls.bases[at] is not None and cls.bases[at] == cls.bases[other]


def _inherits(cls: ClassModel, at: int, earlier: int) -> bool:
    """Whether a base is, or certainly inherits, one that stands before it."""
    base, other = cls.bases[at], cls.bases[earlier]
    if base is None or other is None:
        return False
    if base == other:
        return True
    if isinstance(other, ClassModel):
        return isinstance(base, ClassModel) and other in base.mro
    if other in ("object", "builtins.object"):
        return True
    ancestors = base.external if isinstance(base, ClassModel) else [base]
    return other in ancestors or (other in _MODULE and any(_is_module(name) for name in ancestors))


def _is_module(name: str) -> bool:
    """Whether a class outside of the tree is known to be a module."""
    pipeline = name.startswith("vllm_omni.") and name.endswith("Pipeline")
    return (
        pipeline
        or name.startswith("torch.nn.")
        or (name.startswith("verl_omni.") and name.rpartition(".")[2] in _CONTRACT)
    )


_CLASS = "class ToyForTraining(NonDiffusersModelBase):"
_ROLLOUT = "class ToyPipelineWithLogProb(ToyPipeline):"
FAILING = (
    Example("a module before the base", {"model": [(_CLASS, _CLASS.replace("(Non", "(«nn.Module», Non"))]}),
    Example(
        "a module before the pipeline",
        {"rollout": [(_ROLLOUT, _ROLLOUT.replace("(Toy", "(«torch.nn.Module», Toy"))]},
    ),
    Example(
        "an object before the base",
        {"model": [("class RMSNorm(nn.Module):", "class RMSNorm(«object», nn.Module):")]},
    ),
    Example(
        "a class of the file before its heir",
        {
            "model": [
                (
                    _CLASS,
                    "class Sizes:\n    pass\n\n\nclass Counted(Sizes):\n    pass\n\n\n"
                    + _CLASS.replace("(Non", "(«Sizes», Counted, Non"),
                )
            ]
        },
    ),
    Example("twice", {"model": [("class RMSNorm(nn.Module):", "class RMSNorm(«nn.Module», nn.Module):")]}),
)
PASSING = (
    Example("the heir first", {"model": [(_CLASS, _CLASS.replace("Base):", "Base, nn.Module):"))]}),
    Example(
        "a class of its own first",
        {"model": [(_CLASS, "class Sizes:\n    pass\n\n\n" + _CLASS.replace("(Non", "(Sizes, Non"))]},
    ),
    Example("of diffusers", base="diffusers"),
)
