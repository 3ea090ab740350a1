"""The pipeline keeps its own scheduler, or its replacement does not fit the pipeline's ``step()``.

The upstream scheduler takes the deterministic Euler step: no noise, no log-prob, nothing to learn from. Its
replacement is called as the pipeline calls schedulers; one that takes fewer arguments raises in the first step, and
verl-omni's scheduler in the place of one that is called with ``(model_output, sigma, sample, dt)`` takes ``dt`` for
its ``s_churn``.

    def __init__(self, *, od_config, prefix=""):
        super().__init__(od_config=od_config, prefix=prefix)       # and self.scheduler stays as it is

Instead: assign an SDE scheduler to the pipeline's attribute, wrapped where the pipeline calls ``step()`` otherwise.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.reach import reachable
from scaffold.check.model.recorded_facts import recorded, recorded_list
from scaffold.check.model.scheduler_wrappers import SDE, Replacement, replacements
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC303"
NAME = "unwrapped-scheduler"
SEVERITY = "error"
CHECKLIST = ("R3",)
APPLIES = Applies(objective="policy_gradient")
HELP = f"assign a {SDE}, wrapped where the pipeline calls step() in another way, to self.scheduler"
# What FlowMatchSDEDiscreteScheduler.step() takes before its options begin.
_PLAIN = 3
_STEPS = ("step", "sample_previous_step")


def check(package: Package) -> Hits:
    """Look at what stands in the place of the pipeline's scheduler."""
    side = side_of(package, "rollout")
    attribute = recorded(package, "upstream", "scheduler_attribute") or "scheduler"
    for adapter in side.adapters:
        if adapter.file not in package.files or not adapter.resolved:
            continue
        found = replacements(side, adapter, attribute)
        if not found:
            if not _set_otherwise(side, attribute):
                yield Hit(adapter.file, adapter.node, f"{adapter.name} leaves the pipeline's own {attribute} in place")
            continue
        for item in found:
            yield from list(_judge(package, item)) or _left_out(side, item)
        options = recorded(package, "upstream", "scheduler_kwargs_attribute")
        if options and not adapter.instance_attributes(options) and not adapter.attribute(options):
            if any(item.wrapper is not None for item in found) and not _set_otherwise(side, options):
                text = f"the pipeline's {options}, made for its own scheduler, go into every step; set them to {{}}"
                yield Hit(adapter.file, adapter.node, text)


def _set_otherwise(side: Side, attribute: str) -> bool:
    """Whether the scheduler is replaced in a way that is not an assignment to ``self``."""
    for function in side.functions:
        for node in function.file.index.nodes(ast.Attribute, function.node):
            if node.attr == attribute and isinstance(node.ctx, ast.Store):
                return True
        if any(function.file.qualified(call.func) == "setattr" for call in function.calls):
            return True
    return False


def _judge(package: Package, item: Replacement) -> Hits:
    file = item.function.file
    called_with = recorded_list(package, "upstream", "step_arguments")
    count = len(called_with) if called_with is not None else None
    name = item.value.attr if isinstance(item.value, ast.Attribute) else ""
    if item.taken is not None and name in item.taken.methods:
        yield Hit(file, item.value, f"{name}() of {item.taken.name} is assigned, and it is no scheduler")
    elif item.function.file.project.class_of(file, item.value) is not None:
        yield Hit(file, item.value, f"{ast.unparse(item.value)} is a class, not an instance of it")
    elif item.made is not None and item.made.startswith("diffusers."):
        yield Hit(file, item.value, f"{item.made.rpartition('.')[2]} of diffusers takes no SDE steps")
    elif item.wrapper is not None and not item.is_sde:
        yield from _wrapper(item, item.wrapper, called_with)
    elif item.is_sde and item.wrapper is None and count is not None and count > _PLAIN:
        yield Hit(
            file,
            item.value,
            f"the pipeline calls step() with {count} arguments, {SDE} takes {_PLAIN} before its options",
        )


def _left_out(side: Side, item: Replacement) -> Hits:
    """Look for a wrapper that the side holds and nothing uses, where the scheduler itself is assigned."""
    if not item.is_sde or item.wrapper is not None:
        return
    files = {function.file for function in side.functions}
    for file in sorted(files, key=lambda file: file.path):
        for cls in file.classes:
            step = cls.methods.get("step")
            stepped = step is not None and any(attribute_name(call) in _STEPS for call in step.calls)
            if stepped and not cls.derives_from(SDE) and not any(_names(other, cls) for other in files):
                text = f"{cls.name} is written to stand here, and nothing makes one"
                yield Hit(item.function.file, item.value, text, f"assign {cls.name}, which takes the pipeline's step()")
                return


def _names(file: PythonFile, cls: ClassModel) -> bool:
    """Whether a file names a class, other than in an import."""
    return any(file.project.class_of(file, node) is cls for node in file.index.nodes(ast.Name)) or any(
        node.attr == cls.name for node in file.index.nodes(ast.Attribute)
    )


def _answers(method: FunctionModel) -> Hits:
    """Compare what is returned with the class that the annotation names."""
    annotation = method.node.returns
    wanted = method.file.project.class_of(method.file, annotation) if annotation is not None else None
    if wanted is None:
        return
    for item in method.returns:
        if isinstance(item.value, (ast.Tuple, ast.Subscript, ast.List, ast.Dict, ast.Constant)):
            yield Hit(method.file, item.value, f"step() answers with {ast.unparse(item.value)}, no {wanted.name}")


def _wrapper(item: Replacement, wrapper: ClassModel, called_with: list[str] | None) -> Hits:
    count = len(called_with) if called_with is not None else None
    method = wrapper.method("step")
    if method is None:
        if wrapper.resolved and not wrapper.external and wrapper.method("__getattr__") is None:
            yield Hit(item.function.file, item.value, f"{wrapper.name} has no step()")
        return
    steps = [
        call for function in reachable(method, wrapper) for call in function.calls if attribute_name(call) in _STEPS
    ]
    if not steps and wrapper.resolved and not wrapper.external:
        yield Hit(method.file, method.node, f"{wrapper.name}.step() never takes a step of an SDE scheduler")
    yield from _answers(method)
    for name, found in wrapper.own_instance_attributes.items():
        for assigned in found:
            made = wrapper.file.qualified(assigned.value.func) if isinstance(assigned.value, ast.Call) else None
            if assigned.value is not None and (made or "").startswith("diffusers."):
                text = f"{name} of {wrapper.name} is a scheduler of diffusers, which takes no SDE steps"
                yield Hit(wrapper.file, assigned.value, text)
    for at, name in enumerate(called_with or ()):
        if name in method.positional and method.positional.index(name) != at and method.vararg is None:
            place = method.parameter_node(name) or method.node
            yield Hit(method.file, place, f"the pipeline gives {name} in place {at + 1} of step()")
            return
    if count is None or method.vararg is not None:
        return
    required = [name for name in method.positional if name in method.required]
    if len(method.positional) < count:
        yield Hit(
            method.file,
            method.node,
            f"the pipeline calls step() with {count} arguments, {wrapper.name} takes {len(method.positional)}",
        )
    elif len(required) > count:
        yield Hit(
            method.file,
            method.node,
            f"the pipeline calls step() with {count} arguments, {wrapper.name} requires {len(required)}",
        )


FAILING = (
    Example("the class itself", rollout=("_ToySchedulerAdapter()", "«_ToySchedulerAdapter»")),
    Example("the wrapper's method", rollout=("_ToySchedulerAdapter()", "«_ToySchedulerAdapter().step»")),
    Example(
        "the scheduler beside its wrapper", rollout=("_ToySchedulerAdapter()", "«FlowMatchSDEDiscreteScheduler()»")
    ),
)
PASSING = (
    Example(
        "a wrapper that is kept under another name too",
        rollout=(
            "self.scheduler = _ToySchedulerAdapter()",
            ("recorder = _ToySchedulerAdapter()\n        self.recorder = recorder\n        self.scheduler = recorder"),
        ),
        spec=(
            "schema = 1\n\n[upstream]\n"
            'version = "0.27.0rc1"\nscheduler_attribute = "scheduler"\n'
            "step_arguments = [\n"
            '    "model_output",\n    "timestep",\n    "sample",\n    "dt",\n'
            "]\n"
        ),
    ),
    Example(
        "a wrapper that takes what the pipeline gives",
        spec=(
            "schema = 1\n\n[upstream]\n"
            'version = "0.27.0rc1"\nscheduler_attribute = "scheduler"\n'
            "step_arguments = [\n"
            '    "model_output",\n    "timestep",\n    "sample",\n    "dt",\n'
            "]\n"
        ),
    ),
)
