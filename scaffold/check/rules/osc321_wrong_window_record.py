"""What is recorded of the SDE window is not what training reads.

Training takes ``latents[:, t]`` and ``latents[:, t + 1]`` with the timestep and the log-prob of each step of the window.
One step more at its end, a first latent that is missing, timesteps of the whole schedule, lists that go on from the
request before: shapes or steps do not belong together, and the ratio of new to old probability means nothing.

    inside = begin <= index <= end                       # one step too many

Instead: record where ``begin <= index < end``: the latent before the first of these steps, and the one after each.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import argument
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.dataflow import origin, reaching, unpacked_at
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.sde import appended, gated, of_window, options, sampling_calls
from scaffold.check.model.sides import Side, side_of
from scaffold.check.model.streams import root_name
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
            yield from _compared(function)
            if "window" in function.name.lower():
                yield from _chosen(function)
    latents, log_probs = list(_lists(side, LATENTS)), list(_lists(side, LOG_PROBS))
    windowed = any(gated(side, function, call) for _, _, found in log_probs for function, call in found)
    yield from _entries(side, latents, log_probs, windowed)
    yield from _carried(package, side, [*latents, *log_probs])
    yield from _stacked(side)
    if windowed:
        yield from _timesteps(side)


def _ends(function: FunctionModel) -> dict[str, str]:
    """Return the names that are unpacked from a window: name -> ``begin`` or ``end``."""
    found: dict[str, str] = {}
    for name in function.file.index.nodes(ast.Name, function.node):
        place = unpacked_at(function.file, name) if isinstance(name.ctx, ast.Store) else None
        if place is not None and isinstance(place[0], ast.Tuple):
            continue  # ``i, window = x, y``: one value each
        value = place[0] if place is not None else None
        if value is None and isinstance(name.ctx, ast.Store):
            value, at = _nested(function, name)
            place = (value, at) if value is not None else None
        if (
            place is not None
            and place[1] < 2
            and "window" in ast.unparse(place[0])
            and "range" not in ast.unparse(place[0])
        ):
            found[name.id] = ("begin", "end")[place[1]]
    return found


def _nested(function: FunctionModel, name: ast.Name) -> tuple[ast.expr | None, int]:
    """Return the value of ``i, (a, b) = x, value`` for a and b."""
    inner = function.file.index.parent(name)
    outer = function.file.index.parent(inner) if isinstance(inner, ast.Tuple) else None
    statement = function.file.index.parent(outer) if isinstance(outer, ast.Tuple) else None
    if isinstance(statement, ast.Assign) and isinstance(outer, ast.Tuple) and isinstance(statement.value, ast.Tuple):
        at = next((i for i, item in enumerate(outer.elts) if item is inner), 0)
        if at < len(statement.value.elts) and isinstance(inner, ast.Tuple):
            return statement.value.elts[at], next(i for i, item in enumerate(inner.elts) if item is name)
    return None, 0


def _compared(function: FunctionModel) -> Hits:
    """Look at comparisons of a step with the ends of the window."""
    ends = _ends(function)
    index = function.file.index
    for node in index.nodes(ast.Compare, function.node) if len(ends) == 2 else ():
        parts = [node.left, *node.comparators]
        names = [ends.get(part.id) if isinstance(part, ast.Name) else None for part in parts]
        steps = [part for part, name in zip(parts, names, strict=True) if name is None]
        if len(steps) != 1 or isinstance(steps[0], ast.Constant) or not any(names):
            continue
        for at, op in enumerate(node.ops):
            left, right = names[at], names[at + 1]
            if (right == "end" and left is None and isinstance(op, ast.LtE)) or (
                left == "end" and isinstance(op, ast.GtE)
            ):
                if left is None or right is None:
                    yield Hit(function.file, node, "the step at the window's end is taken for one of its steps")
            if (left == "begin" and right is None and isinstance(op, ast.Lt)) or (
                right == "begin" and left is None and isinstance(op, ast.Gt)
            ):
                yield Hit(function.file, node, "the first step of the window is taken for one outside")
        statement = index.parent(node)
        turned = isinstance(statement, ast.UnaryOp) and isinstance(statement.op, ast.Not)
        statement = index.parent(statement) if turned and statement is not None else statement
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Name):
            if set(names) - {None} != {"begin", "end"} and not _asked_elsewhere(function, node, ends):
                yield Hit(function.file, node, f"only the window's {next(name for name in names if name)} decides here")
            if turned and _records(function, target.id):
                yield Hit(function.file, node, "what is recorded are the steps outside of the window")


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
        if (
            isinstance(target, ast.Attribute)
            and target.attr in ("randint", "randrange", "integers")
            and len(call.args) > 1
        ):
            text = _written(function, call.args[1])
            if size not in text and size not in _written(function, call.args[0]):
                yield Hit(function.file, call.args[1], "a window that begins here ends behind its range")


def _written(function: FunctionModel, value: ast.expr) -> str:
    """Return a value as it is written, local names followed."""
    text = ast.unparse(value)
    for name in function.file.index.nodes(ast.Name, value):
        for binding in reaching(function, name):
            found = binding.value
            if found is None and (place := unpacked_at(function.file, binding.node)) is not None:
                found = place[0].elts[place[1]] if isinstance(place[0], ast.Tuple) else place[0]
            text += " " + ast.unparse(found) if found is not None else ""
    return text


def _asked_elsewhere(function: FunctionModel, node: ast.Compare, ends: dict[str, str]) -> bool:
    others = [n for n in function.file.index.nodes(ast.Compare, function.node) if n is not node]
    return any(isinstance(n, ast.Name) and n.id in ends for other in others for n in (other.left, *other.comparators))


def _records(function: FunctionModel, name: str) -> bool:
    """Whether lists grow under ``if name``."""
    for node in function.file.index.nodes(ast.If, function.node):
        if isinstance(node.test, ast.Name) and node.test.id == name:
            calls = [c for part in node.body for c in function.file.index.nodes(ast.Call, part)]
            return any(isinstance(c.func, ast.Attribute) and c.func.attr == "append" for c in calls)
    return False


def _lists(
    side: Side, part: str
) -> Iterator[tuple[FunctionModel, ast.Attribute, list[tuple[FunctionModel, ast.Call]]]]:
    """Yield the lists of ``self`` that a part of the result is stacked of, with the calls that fill them."""
    seen: set[str] = set()
    for option in options(side, part):
        for around, _, node in origin(side, option.function, option.value).nodes:
            if around is None or not isinstance(node, ast.Call) or not node.args:
                continue
            stacked = isinstance(node.func, ast.Attribute) and node.func.attr in ("stack", "cat")
            first = node.args[0]
            if stacked and isinstance(first, ast.Attribute) and first.attr not in seen:
                seen.add(first.attr)
                yield around, first, appended(side, around, first)


def _entries(
    side: Side,
    latents: list[tuple[FunctionModel, ast.Attribute, list[tuple[FunctionModel, ast.Call]]]],
    log_probs: list[tuple[FunctionModel, ast.Attribute, list[tuple[FunctionModel, ast.Call]]]],
    windowed: bool,
) -> Hits:
    for around, node, found in log_probs:
        if not found and _starts_empty(side, around, node):
            yield Hit(around.file, node, f"nothing is ever put into {ast.unparse(node)}")
    for around, node, found in latents:
        if not _starts_empty(side, around, node):
            continue
        kinds = {_of_result(side, function, call.args[0]) for function, call in found if call.args}
        if not found:
            yield Hit(around.file, node, f"nothing is ever put into {ast.unparse(node)}")
        elif kinds == {True}:
            yield Hit(around.file, node, "the latents before the window's first step are not recorded")
        elif kinds == {False}:
            yield Hit(around.file, node, "the latents after each step are not recorded")


def _starts_empty(side: Side, around: FunctionModel, node: ast.Attribute) -> bool:
    cls = side.receiver(around)
    assigned = cls.instance_attributes(node.attr) if cls is not None else []
    values = [item.value if item.value is not None else _unpacked(item.file, item.node) for item in assigned]
    return bool(values) and all(isinstance(value, ast.List) and not value.elts for value in values)


def _unpacked(file: PythonFile, node: ast.AST) -> ast.expr | None:
    place = unpacked_at(file, node)
    if place is None or not isinstance(place[0], ast.Tuple) or place[1] >= len(place[0].elts):
        return None
    return place[0].elts[place[1]]


def _of_result(side: Side, function: FunctionModel, value: ast.expr) -> bool | None:
    """Whether a value comes out of the scheduler's step: True, False where it goes in, None where it is not plain."""
    name = root_name(value)
    calls = [call for around, call in sampling_calls(side) if around == function]
    names = [n for n in function.file.index.nodes(ast.Name, value) if n.id == name]
    if not calls or not names:
        return None
    for binding in reaching(function, names[0]):
        place = unpacked_at(function.file, binding.node)
        if (place is not None and place[0] in calls) or binding.value in calls:
            return True
    return False if any(name in {n.id for n in function.file.index.nodes(ast.Name, call)} for call in calls) else None


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
        cut = [(a, f, n) for a, f, n in slices if of_window(_words(side, a, n))]
        if not cut:
            yield Hit(
                option.function.file,
                option.value,
                "the timesteps of all steps are returned with the window's log-probs",
            )
        for around, file, part in cut:
            ends = _ends(around)
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


def _words(side: Side, around: FunctionModel, node: ast.Slice) -> set[str]:
    parts = [part for part in (node.lower, node.upper) if part is not None]
    return {word for part in parts for word in origin(side, around, part).words}


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
