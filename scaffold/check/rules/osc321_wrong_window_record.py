"""What is recorded of the SDE window is not what training reads.

Training takes ``latents[:, t]`` and ``latents[:, t + 1]`` with the timestep and the log-prob of each step of the window.
One step more at its end, a first latent that is missing, timesteps of the whole schedule, lists that go on from the
request before: shapes or steps do not belong together, and the ratio of new to old probability means nothing.

    inside = begin <= index <= end                       # one step too many

Instead: record where ``begin <= index < end``: the latent before the first of these steps, and the one after each.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import argument
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.dataflow import origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.recorded_dimensions import gets_batch
from scaffold.check.model.sde import gated, of_window, options
from scaffold.check.model.sides import Side, side_of
from scaffold.check.model.window_comparisons import wrong_comparisons
from scaffold.check.model.window_records import (
    is_of_result,
    result_lists,
    starts_empty,
    window_ends,
    words_of_end,
    written_out,
)
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC321"
NAME = "wrong-window-record"
SEVERITY = "error"
CHECKLIST = ("R6", "pitfall 2", "pitfall 6")
APPLIES = Applies(non_diffusers=True, objective="policy_gradient")
HELP = "record W + 1 latents, W timesteps and W log-probs of the steps begin <= i < end, anew for each request"


LATENTS, TIMESTEPS, LOG_PROBS = "trajectory_latents", "trajectory_timesteps", "trajectory_log_probs"


def check(package: Package) -> Hits:
    """Look at comparisons with the window, at the lists, and at what is made of them."""
    side = side_of(package, "rollout")
    if not options(side, LOG_PROBS):
        return
    for function in side.functions:
        if function.file in package.files:
            for node, text in wrong_comparisons(function):
                yield Hit(function.file, node, text)
            if "window" in function.name.lower():
                yield from _chosen(function)
    latents, log_probs = list(result_lists(side, LATENTS)), list(result_lists(side, LOG_PROBS))
    windowed = any(gated(side, function, call) for _, _, found in log_probs for function, call in found)
    yield from _entries(side, latents, log_probs, windowed)
    if windowed:
        yield from _ungated(side, latents)
    yield from _carried(package, side, [*latents, *log_probs])
    yield from _stacked(side)
    if windowed:
        yield from _timesteps(side)


def _chosen(function: FunctionModel) -> Hits:
    """Look at the pair that a function returns as the window: ``begin, begin + size``."""
    size = next((name for name in function.parameters if "size" in name), None)
    if size is None:
        return
    for item in function.returns:
        if not (isinstance(item.value, ast.Tuple) and len(item.value.elts) == 2):
            continue
        begin, end = item.value.elts
        text = ast.unparse(end)
        if text in (size, f"int({size})") and function.file.value(begin) != 0:
            yield Hit(function.file, end, "the window's size is returned as its end")
        elif isinstance(end, ast.BinOp) and isinstance(end.op, (ast.Add, ast.Sub)) and size in text:
            if isinstance(function.file.value(end.right), int):
                yield Hit(function.file, end, "the window is not as long as its size")
    for call in function.calls:
        target = call.func
        draws = isinstance(target, ast.Attribute) and target.attr in ("randint", "randrange", "integers")
        if draws and len(call.args) > 1:
            text = written_out(function, call.args[1])
            if size not in text and size not in written_out(function, call.args[0]):
                yield Hit(function.file, call.args[1], "a window that begins here ends behind its range")
        scaled = function.file.index.parent(call)  # a fraction of the places to begin at: ``rng.random() * count``
        if isinstance(target, ast.Attribute) and target.attr == "random" and not call.args:
            if isinstance(scaled, ast.BinOp) and isinstance(scaled.op, ast.Mult):
                count = scaled.left if scaled.right is call else scaled.right
                if size not in written_out(function, count):
                    yield Hit(function.file, count, "a window that begins here ends behind its range")


def _entries(
    side: Side,
    latents: list[tuple[FunctionModel, ast.Attribute, list[tuple[FunctionModel, ast.Call]]]],
    log_probs: list[tuple[FunctionModel, ast.Attribute, list[tuple[FunctionModel, ast.Call]]]],
    windowed: bool,
) -> Hits:
    for around, node, found in log_probs:
        if not found and starts_empty(side, around, node):
            yield Hit(around.file, node, f"nothing is ever put into {ast.unparse(node)}")
    for around, node, found in latents:
        if not starts_empty(side, around, node):
            continue
        kinds = {is_of_result(side, function, call.args[0]) for function, call in found if call.args}
        if not found:
            yield Hit(around.file, node, f"nothing is ever put into {ast.unparse(node)}")
        elif kinds == {True}:
            yield Hit(around.file, node, "the latents before the window's first step are not recorded")
        elif kinds == {False}:
            yield Hit(around.file, node, "the latents after each step are not recorded")


def _ungated(
    side: Side, latents: list[tuple[FunctionModel, ast.Attribute, list[tuple[FunctionModel, ast.Call]]]]
) -> Hits:
    """Look for latents that are put down at steps outside the window, whose log-probs are not, and never cut."""
    for _around, node, found in latents:
        slices = [part for option in options(side, LATENTS) for part in _slices(side, option.function, option.value)]
        for function, call in found:
            outside = bool(call.args) and is_of_result(side, function, call.args[0]) and not gated(side, function, call)
            if outside and not slices and not _leaves_early(function, call):
                text = f"{ast.unparse(node)} grows at every step, the log-probs only in the window"
                yield Hit(function.file, call, text)


def _slices(side: Side, function: FunctionModel, value: ast.expr) -> list[ast.AST]:
    return [node for _, _, node in origin(side, function, value).nodes if isinstance(node, ast.Slice)]


def _leaves_early(function: FunctionModel, call: ast.Call) -> bool:
    """Whether a test before the call leaves the function, or the turn of a loop."""
    return any(
        isinstance(last, (ast.Return, ast.Continue)) and node.lineno < call.lineno
        for node in function.file.index.nodes(ast.If, function.node)
        for last in node.body[-1:]
    )


def _carried(
    package: Package,
    side: Side,
    lists: list[tuple[FunctionModel, ast.Attribute, list[tuple[FunctionModel, ast.Call]]]],
) -> Hits:
    """Look for lists of an object that lives as long as the adapter and are emptied nowhere."""
    made: set[ClassModel] = set()
    for adapter in side.adapters:
        for name in {name for cls in adapter.mro for name in cls.own_instance_attributes}:
            for assigned in adapter.instance_attributes(name):
                value = assigned.value
                if assigned.method is not None and assigned.method.name == "__init__" and isinstance(value, ast.Call):
                    cls = assigned.file.project.class_of(assigned.file, value.func)
                    made |= {cls} if cls is not None else set()
    for around, node, found in lists:
        cls = side.receiver(around)
        if cls is None or cls not in made or not found:
            continue
        stores = cls.instance_attributes(node.attr)
        cleared = any(
            isinstance(call.func, ast.Attribute)
            and call.func.attr in ("clear", "pop")
            and node.attr in ast.unparse(call.func)
            for method in cls.methods.values()
            for call in method.calls
        )
        if (
            stores
            and not cleared
            and all(item.method is not None and item.method.name == "__init__" for item in stores)
        ):
            if not any(isinstance(n, ast.Delete) for method in cls.methods.values() for n in method.nodes(ast.Delete)):
                yield Hit(around.file, node, f"{ast.unparse(node)} still holds the steps of the request before")


def _stacked(side: Side) -> Hits:
    """Compare the dimensions along which the parts are stacked."""
    found: dict[ast.Call, tuple[PythonFile, object]] = {}
    for part in (LATENTS, LOG_PROBS):
        for option in options(side, part):
            for around, file, node in origin(side, option.function, option.value).nodes:
                if around is None or not isinstance(node, ast.Call) or file.qualified(node.func) != "torch.stack":
                    continue
                if gets_batch(file, node):
                    continue
                given = argument(node, "dim", 1)
                found[node] = (file, file.value(given) if given is not None else 0)
    dims = {dim for _, dim in found.values() if isinstance(dim, int)}
    if len(dims) == 2 and 0 in dims:
        for node, (file, dim) in found.items():
            if dim == 0:
                yield Hit(file, node, "the steps are stacked in front of the batch here, and behind it elsewhere")


def _timesteps(side: Side) -> Hits:
    """Look at the slice of the schedule that is returned for the window."""
    for option in options(side, TIMESTEPS):
        found = origin(side, option.function, option.value)
        slices = [(a, f, n) for a, f, n in found.nodes if isinstance(n, ast.Slice) and a is not None]
        whole = [(a, f, n) for a, f, n in found.nodes if isinstance(n, ast.Attribute) and n.attr == "timesteps"]
        lists = [
            n
            for _, _, n in found.nodes
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "stack"
        ]
        if lists or not whole or not found.complete:
            continue
        cut = [(a, f, n) for a, f, n in slices if of_window(words_of_end(side, a, n))]
        if not cut:
            yield Hit(
                option.function.file,
                option.value,
                "the timesteps of all steps are returned with the window's log-probs",
            )
        for around, file, part in cut:
            ends = window_ends(around)
            lower = ends.get(part.lower.id) if isinstance(part.lower, ast.Name) else None
            upper = ends.get(part.upper.id) if isinstance(part.upper, ast.Name) else None
            if (
                lower == "end"
                or upper == "begin"
                or isinstance(part.upper, ast.BinOp)
                or isinstance(part.lower, ast.BinOp)
            ):
                yield Hit(file, part.lower or part.upper or option.value, "this is not the window's slice, [begin:end]")
            elif lower == "begin" and part.upper is None:
                yield Hit(file, part.lower or option.value, "the timesteps behind the window are returned as well")


FAILING = (
    Example(
        "a window that is too long",
        {"common": [("return begin, begin + int(size)", "return begin, «begin + int(size) + 1»")]},
    ),
    Example("its size for its end", {"common": [("return begin, begin + int(size)", "return begin, «int(size)»")]}),
    Example(
        "drawn beyond the range",
        {
            "common": [
                ("int(window_range[1]) - int(size)", "int(window_range[1])"),
                ("randint(low, latest)", "randint(low, «latest»)"),
            ]
        },
    ),
    Example(
        "a fraction of the whole range",
        {
            "common": [
                ("int(window_range[1]) - int(size)", "int(window_range[1])"),
                (
                    "random.Random(int(training_step)).randint(low, latest)",
                    "low + int(random.Random(int(training_step)).random() * («latest - low + 1»))",
                ),
            ]
        },
    ),
    Example(
        "one step more",
        {"rollout": [("inside = begin <= self._index < end", "inside = «begin <= self._index <= end»")]},
    ),
    Example(
        "one step later", {"rollout": [("inside = begin <= self._index < end", "inside = «begin < self._index < end»")]}
    ),
    Example("one end alone", {"rollout": [("inside = begin <= self._index < end", "inside = «self._index < end»")]}),
    Example(
        "outside", {"rollout": [("inside = begin <= self._index < end", "inside = not «begin <= self._index < end»")]}
    ),
    Example(
        "no first latent",
        {
            "rollout": [
                ("            if not self._latents:\n                self._latents.append(sample)\n", ""),
                ("torch.stack(self._latents, dim=1)", "torch.stack(«self._latents», dim=1)"),
            ]
        },
    ),
    Example(
        "latents of every step behind its first",
        {
            "rollout": [
                ("            self._latents.append(prev_sample)\n", ""),
                (
                    "        return _StepOutput(",
                    "        if self._latents:\n            «self._latents.append(prev_sample)»\n        return _StepOutput(",
                ),
            ]
        },
    ),
    Example(
        "no next latent",
        {
            "rollout": [
                ("            self._latents.append(prev_sample)\n", ""),
                ("torch.stack(self._latents, dim=1)", "torch.stack(«self._latents», dim=1)"),
            ]
        },
    ),
    Example(
        "no log-probs",
        {
            "rollout": [
                ("                self._log_probs.append(log_prob)\n", "                print(log_prob)\n"),
                ("torch.stack(self._log_probs, dim=1)", "torch.stack(«self._log_probs», dim=1)"),
            ]
        },
    ),
    Example(
        "not emptied",
        {
            "rollout": [
                (
                    "        self._index = 0\n        self._latents, self._log_probs = [], []\n\n    def step",
                    "        self._index = 0\n\n    def step",
                ),
                ("torch.stack(self._latents, dim=1)", "torch.stack(«self._latents», dim=1)"),
                ("torch.stack(self._log_probs, dim=1)", "torch.stack(«self._log_probs», dim=1)"),
            ]
        },
    ),
    Example(
        "stacked in front", {"rollout": [("torch.stack(self._log_probs, dim=1)", "«torch.stack(self._log_probs)»")]}
    ),
    Example(
        "all timesteps",
        {
            "rollout": [
                ("self.inner.timesteps.cpu()[begin:end][None]", "self.inner.timesteps.cpu()[None]"),
                ("trajectory_timesteps=timesteps", "trajectory_timesteps=«timesteps»"),
            ]
        },
    ),
    Example(
        "one timestep more",
        {
            "rollout": [
                ("self.inner.timesteps.cpu()[begin:end][None]", "self.inner.timesteps.cpu()[«begin»:end + 1][None]")
            ]
        },
    ),
)
PASSING = (
    Example("the window's steps"),
    Example(
        "asked for the outside",
        {
            "rollout": [
                ("inside = begin <= self._index < end", "inside = not (self._index < begin or self._index >= end)")
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
