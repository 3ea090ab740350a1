"""A class does not initialise what it inherits, or does so too late.

``nn.Module`` keeps its sub-modules in dictionaries that its ``__init__`` makes; without them the first assignment of a
layer raises. An upstream pipeline builds everything in its own, its scheduler included: what an adapter assigned before
that is overwritten, and the rollout samples without noise and without log-probs.

    def __init__(self, *, od_config, prefix=""):
        self.scheduler = ToySchedulerAdapter()
        super().__init__(od_config=od_config, prefix=prefix)      # puts its own scheduler there

Instead: call ``super().__init__(…)`` before anything is assigned.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC133"
NAME = "missing-super-init"
SEVERITY = "error"
CHECKLIST = ("M2", "R2", "R3")
APPLIES = Applies()
HELP = "call super().__init__() first"


def check(package: Package) -> Hits:
    """Look at the constructors of modules and of rollout adapters."""
    modules = [package.training_module, *(part.cls for part in package.module_tree)]
    for cls in dict.fromkeys([*modules, *package.rollout_adapters]):
        start = cls.methods.get("__init__") if cls is not None else None
        if cls is None or start is None or cls.file not in package.files or not (cls.external or cls.mro[1:]):
            continue
        module = cls not in package.rollout_adapters
        if module and cls.derives_from("torch.nn.Module", "nn.Module", "NonDiffusersModelBase") is not True:
            continue
        yield from _constructor(cls, start)


def _constructor(cls: ClassModel, start: FunctionModel) -> Hits:
    calls = [call for call in start.calls if _initialises(start, call)]
    stored = [
        node
        for node in start.file.index.nodes(ast.Attribute, start.node)
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == start.bound
    ]
    if not calls:
        if stored and not any(isinstance(node, ast.Starred) for node in cls.node.bases):
            yield Hit(start.file, start.node, f"{cls.name}.__init__() never calls super().__init__()")
        return
    first = min((call.lineno, call.col_offset) for call in calls)
    early = [
        node
        for node in stored
        if (node.lineno, node.col_offset) < first and not any(start.file.index.contains(call, node) for call in calls)
    ]
    if early:
        node = min(early, key=lambda node: (node.lineno, node.col_offset))
        more = f", and {len(early) - 1} more are" if len(early) > 1 else " is"
        yield Hit(start.file, node, f"self.{node.attr}{more} assigned before super().__init__() runs")


def _initialises(start: FunctionModel, call: ast.Call) -> bool:
    """Whether a call is ``super().__init__(…)`` or ``Base.__init__(self, …)``."""
    target = call.func
    return isinstance(target, ast.Attribute) and target.attr in ("__init__", "__attrs_init__")


FAILING = (
    Example(
        "not called",
        {
            "model": [
                (
                    "    def __init__(self, config: ToyTrainingConfig):\n        super().__init__()\n        self.config",
                    "    def «__init__»(self, config: ToyTrainingConfig):\n        self.config",
                )
            ]
        },
    ),
    Example(
        "too late",
        {
            "rollout": [
                (
                    "        super().__init__(od_config=od_config, prefix=prefix)\n        self.scheduler = _ToySchedulerAdapter()\n",
                    "        «self.scheduler» = _ToySchedulerAdapter()\n        self.kept = {}\n        super().__init__(od_config=od_config, prefix=prefix)\n",
                )
            ]
        },
    ),
)
PASSING = (
    Example("first"),
    Example(
        "of the base by name",
        {
            "rollout": [
                (
                    "super().__init__(od_config=od_config, prefix=prefix)",
                    "ToyPipeline.__init__(self, od_config=od_config, prefix=prefix)",
                )
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
