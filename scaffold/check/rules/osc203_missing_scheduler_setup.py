"""The training adapter's scheduler is not set up, or is none that recomputes log-probs.

The engine calls ``build_scheduler()`` once and then looks noise levels up by timestep. A scheduler without the
recipe's timesteps finds none of the trajectory's, or those of its own default schedule; one without
``sample_previous_step`` cannot recompute a log-prob at all.

    @classmethod
    def build_scheduler(cls, model_config):
        return FlowMatchSDEDiscreteScheduler()          # set_timesteps() is never called

Instead: build a ``FlowMatchSDEDiscreteScheduler``, call ``cls.set_timesteps()`` on it, and set the shared schedule
there.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.follow import returned
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.reach import reachable
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC203"
NAME = "missing-scheduler-setup"
SEVERITY = "error"
CHECKLIST = ("T3",)
APPLIES = Applies(objective="policy_gradient")
HELP = "build the SDE scheduler in build_scheduler(), and give it the shared schedule in set_timesteps()"
_ATTRIBUTES = ("timesteps", "sigmas")


def check(package: Package) -> Hits:
    """Look at the two methods."""
    for adapter in package.training_adapters:
        if not adapter.resolved:
            continue
        build, setter = _own(adapter, "build_scheduler"), _own(adapter, "set_timesteps")
        for name, method in (("build_scheduler", build), ("set_timesteps", setter)):
            if method is None and not _elsewhere(adapter):
                yield Hit(adapter.file, adapter.node, f"{adapter.name} does not define {name}()")
        if build is not None:
            yield from _built(build, adapter)
        copied = _copied(setter) if setter is not None else None
        if setter is not None and copied is not None:
            yield Hit(setter.file, copied, "a copy gets the timesteps, the scheduler that the engine uses does not")
        elif setter is not None and not _sets(setter, adapter):
            yield Hit(setter.file, setter.node, f"{adapter.name}.set_timesteps() gives the scheduler no timesteps")


def _own(adapter: ClassModel, name: str) -> FunctionModel | None:
    method = adapter.method(name)
    return None if method is None or _is_contract(method) else method


def _is_contract(method: FunctionModel) -> bool:
    return method.file.path == "verl_omni/pipelines/model_base.py" and method.is_abstract


def _elsewhere(adapter: ClassModel) -> bool:
    """Whether an ancestor that is not in the tree may define it."""
    return any(
        not base.startswith("verl_omni.pipelines.model_base.") and base != "abc.ABC" for base in adapter.external
    )


def _built(build: FunctionModel, adapter: ClassModel) -> Hits:
    values = returned(build)
    if not values or any(isinstance(value, ast.Constant) and value.value is None for value in values):
        yield Hit(build.file, build.node, f"{adapter.name}.build_scheduler() returns nothing")
        return
    for value in values:
        made = value.func if isinstance(value, ast.Call) else None
        if isinstance(made, ast.Attribute) and made.attr.startswith("from_"):
            made = made.value
        new = isinstance(value, ast.Call) and not value.args and len(values) == 1
        statement = next((item for item in build.returns if item.value is value), None)
        if new and statement is not None and len(build.node.body) > 2 and _own_setup(build, value):
            yield Hit(build.file, value, "the scheduler that is returned is not the one that was set up")
        name = build.file.qualified(made) if made is not None else None
        if isinstance(made, ast.Name) and name is None and not build.file.scopes.lookup(made.id, made):
            if not build.file.stars:
                yield Hit(build.file, made, f"{made.id} is neither defined nor imported")
        if name is not None and name.startswith("diffusers."):
            yield Hit(build.file, value, f"{name.rpartition('.')[2]} of diffusers has no sample_previous_step()")
    if not any(_sets(function, adapter) for function in [build]):
        yield Hit(build.file, build.node, f"{adapter.name}.build_scheduler() returns a scheduler without timesteps")


def _own_setup(build: FunctionModel, value: ast.expr) -> bool:
    """Whether another scheduler got timesteps before."""
    calls = [c for c in build.calls if isinstance(c.func, ast.Attribute) and c.func.attr == "set_timesteps"]
    names = [a.id for call in calls for a in call.args if isinstance(a, ast.Name)]
    made = [
        n
        for n in build.nodes(ast.Call)
        if isinstance(n, ast.Call) and ast.unparse(n) == ast.unparse(value) and n is not value
    ]
    return bool(names) and bool(made)


def _copied(setter: FunctionModel) -> ast.Call | None:
    """Return the copy of the scheduler, where nothing else is done with the scheduler."""
    index, name = setter.file.index, setter.positional[0] if setter.positional else ""
    loads = [n for n in index.nodes(ast.Name, setter.node) if n.id == name and isinstance(n.ctx, ast.Load)]
    found: ast.Call | None = None
    for node in loads:
        call = index.parent(node)
        if not isinstance(call, ast.Call) or setter.file.qualified(call.func) not in ("copy.deepcopy", "copy.copy"):
            return None
        found = call
    stored = any(n.id == name and isinstance(n.ctx, ast.Store) for n in index.nodes(ast.Name, setter.node))
    return None if stored else found


def _sets(start: FunctionModel, adapter: ClassModel) -> bool:
    """Whether a scheduler gets timesteps in what a method calls."""
    for function in reachable(start, adapter):
        for call in function.calls:
            target = call.func
            if isinstance(target, ast.Name) and len(function.file.scopes.lookup(target.id, target)) > 1:
                return True  # bound twice: what it does is not known
            if isinstance(target, ast.Attribute) and target.attr == "set_timesteps":
                own = isinstance(target.value, ast.Name) and target.value.id in (function.bound, adapter.name)
                # ``cls.set_timesteps(…)`` is followed; that of a class outside of the tree counts.
                if not own or adapter.method("set_timesteps") is None:
                    return True
                if start.name == "build_scheduler":
                    return True
        for node in function.file.index.nodes(ast.Attribute, function.node):
            if node.attr in _ATTRIBUTES and isinstance(node.ctx, ast.Store):
                return True
    return False


FAILING = (
    Example(
        "a copy is set up",
        training=[
            ("annotations", "annotations\n\nimport copy"),
            ("setup_toy_sigmas(scheduler,", "setup_toy_sigmas(«copy.deepcopy(scheduler)»,"),
        ],
    ),
    Example(
        "a scheduler that is not imported",
        training=(" FlowMatchSDEDiscreteScheduler(", " «FlowMatchEulerDiscreteScheduler»("),
    ),
    Example(
        "another scheduler is returned", training=("return scheduler\n", "return «FlowMatchSDEDiscreteScheduler()»\n")
    ),
)
PASSING = (
    Example(
        "set up in build_scheduler itself",
        training=(
            "cls.set_timesteps(scheduler, model_config, ",
            "setup_toy_sigmas(scheduler, model_config.pipeline.num_inference_steps, device=",
        ),
    ),
)
