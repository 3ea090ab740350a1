"""The noise schedule is not the one that the upstream pipeline walks.

Both adapters may share one function and still be wrong together: the pipeline denoises with its own shift, direction and
number of levels. Every log-prob is then taken at another noise level than the sample was made at.

    t = torch.linspace(0, 1, n)                          # upwards, the pipeline goes down from 1
    scheduler.set_shift(3.0)                             # shifts what is shifted already

Instead: go from 1 to 0, shift once with the pipeline's rate, leave the terminal 0 out, and take the scheduler's
timesteps from its sigmas.
"""

from __future__ import annotations

import ast
import re
from itertools import islice

from scaffold.check.example import Example
from scaffold.check.example_schedules import ASKED
from scaffold.check.model.calls import keyword
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.model.schedule_differences import differences
from scaffold.check.model.schedules import SPACED, asked_only, schedule_of
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC223"
NAME = "other-schedule"
SEVERITY = "error"
CHECKLIST = ("T3", "pitfall 30", "pitfall 5", "pitfall 44")
APPLIES = Applies(non_diffusers=True, objective="policy_gradient")
HELP = "compute the noise levels as the upstream pipeline does, and put them into the scheduler as they are"
_SPEC = '[upstream]\nversion = "0.27.0rc1"\n\n[schedule]\nshift = 3.0\ndirection = "descending"\n'
_LINSPACE = "torch.linspace(1, 0, max(num_inference_steps, 2), dtype=torch.float32)"
_SHIFT = "(SCHEDULE_SHIFT * t / (1 + (SCHEDULE_SHIFT - 1) * t))[:-1].tolist()"
_TIMES = "scheduler.timesteps = scheduler.sigmas[:-1].clone()"


def check(package: Package) -> Hits:
    """Look at the functions that space the noise levels, and at those that set the scheduler up with them."""
    side = side_of(package, "training")
    computing = [function for function in schedule_of(side).computed if function.file in package.files]
    setting = [f for f, call in side.calls("set_timesteps") if f.file in package.files and _sets_sigmas(call)]
    for function in computing:
        yield from _direction(function)
        yield from _end(function)
    found = [*_shift(package, side, [*computing, *setting]), *_unset(package, side)]
    for function in dict.fromkeys(setting):
        found += [*_twice(function), *_timesteps(function)]
    yield from found
    for adapter in side.adapters if not found else ():
        for function, node, text, help in islice(differences(package, adapter), 1):
            yield Hit(function.file, node, text, help)


def _sets_sigmas(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and keyword(call, "sigmas") is not None


def _spaced(function: FunctionModel) -> list[ast.Call]:
    return [call for call in function.calls if function.file.qualified(call.func) in SPACED and len(call.args) >= 2]


def _unset(package: Package, side: Side) -> Hits:
    """Look for noise levels that are computed beside a scheduler which is given a number of steps instead."""
    for function, call in side.calls("set_timesteps"):
        own = [item.arg for item in call.keywords]
        plain = function.file in package.files and side.called(function, call) is None and None not in own
        if not plain or "sigmas" in own or "timesteps" in own or any(a for a in call.args if "sigma" in ast.unparse(a)):
            continue
        for other in function.calls:
            called = side.called(function, other)
            if called is None or not _spaced(called) or isinstance(function.file.index.parent(other), ast.Return):
                continue
            stored = [n for n in function.nodes(ast.Attribute) if isinstance(n, ast.Attribute) and n.attr == "sigmas"]
            if not any(isinstance(node.ctx, ast.Store) for node in stored):
                text = f"{called.name}() computes the noise levels, and the scheduler is not given them"
                yield Hit(function.file, call, text, "write set_timesteps(sigmas=…)")


def _direction(function: FunctionModel) -> Hits:
    for call in _spaced(function):
        ends = [function.file.value(value) for value in call.args[:2]]
        flipped = any(
            isinstance(node, ast.Attribute) and node.attr in ("flip", "flipud")
            for node in function.nodes(ast.Attribute)
        )
        flipped = (
            flipped
            or "[::-1]" in ast.unparse(function.node)
            or "1 - " in ast.unparse(function.node)
            or "1.0 - " in ast.unparse(function.node)
        )
        if all(isinstance(end, (int, float)) for end in ends) and ends[0] < ends[1] and not flipped:  # type: ignore[operator]
            yield Hit(function.file, call, "the noise levels go upwards; denoising begins at the highest")


def _end(function: FunctionModel) -> Hits:
    """Look at schedules down to 0 that keep the terminal level: the scheduler appends it itself."""
    for call in _spaced(function):
        if function.file.value(call.args[1]) not in (0, 0.0) or not _returns_list(function):
            continue
        cut = [node for node in function.nodes(ast.Slice) if isinstance(node, ast.Slice) and node.upper is not None]
        if not cut:
            yield Hit(function.file, call, "the terminal noise level 0 is kept, and the scheduler appends another one")


def _returns_list(function: FunctionModel) -> bool:
    values = [item.value for item in function.returns]
    return bool(values) and all(
        isinstance(v, ast.Call) and isinstance(v.func, ast.Attribute) and v.func.attr == "tolist" for v in values
    )


def _shift(package: Package, side: Side, functions: list[FunctionModel]) -> Hits:
    """Compare the shift with the recorded one, and see that it is applied at all."""
    text = recorded(package, "schedule", "shift")
    if text is None or not re.fullmatch(r"\d+(\.\d+)?", text) or not functions:
        return
    wanted = float(text)
    reached = [
        f for f in side.functions if f in functions or any(side.called(g, c) == f for g in functions for c in g.calls)
    ]
    values: list[tuple[FunctionModel, ast.expr, float]] = []
    for function in dict.fromkeys(reached):
        shifts = [name for name in function.parameters if "shift" in name]
        for name in shifts:
            default = function.default(name)
            value = function.file.value(default) if default is not None else None
            if default is not None and isinstance(value, (int, float)):
                values.append((function, default, float(value)))
        for node in function.file.index.nodes(ast.Name, function.node):
            value = function.file.value(node) if "shift" in node.id.lower() and node.id.isupper() else None
            if isinstance(value, (int, float)):
                values.append((function, node, float(value)))
        for call in function.calls:
            if (
                any(side.called(function, call) == other for other in reached)
                and (given := keyword(call, "shift")) is not None
            ):
                value = function.file.value(given)
                if isinstance(value, (int, float)):
                    values.append((function, given, float(value)))
    for function, place, shift in values:
        if shift != wanted and not _of_set_shift(function, place):
            yield Hit(function.file, place, f"the schedule is shifted by {shift:g}, the pipeline's by {wanted:g}")
            return
    if wanted != 1.0:
        for function in [f for f in functions if _spaced(f)]:
            numbers = {n.value for f in reached for n in f.file.index.nodes(ast.Constant, f.node)}
            if not values and wanted not in numbers and "shift" not in ast.unparse(function.node).lower():
                yield Hit(
                    function.file,
                    _spaced(function)[0],
                    f"nothing shifts these noise levels, the pipeline's are shifted by {wanted:g}",
                )


def _of_set_shift(function: FunctionModel, node: ast.AST) -> bool:
    parent = function.file.index.parent(node)
    return isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "set_shift"


def _twice(function: FunctionModel) -> Hits:
    """Look for a scheduler that shifts noise levels which are computed with their shift."""
    for call in function.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "set_shift" and call.args:
            value = function.file.value(call.args[0])
            if isinstance(value, (int, float)) and value != 1:
                yield Hit(
                    function.file,
                    call.args[0],
                    "the scheduler shifts these noise levels once more; 1.0 leaves them as they are",
                )


def _timesteps(function: FunctionModel) -> Hits:
    """Look for sigmas that go in without timesteps of their own: the scheduler makes 1000 times them of it."""
    given = [call for call in function.calls if _sets_sigmas(call) and not asked_only(function, call)]
    stored = [
        n
        for n in function.file.index.nodes(ast.Attribute, function.node)
        if n.attr == "timesteps" and isinstance(n.ctx, ast.Store)
    ]
    if given and not stored and not any(keyword(call, "timesteps") is not None for call in given) and len(given) == 1:
        if not any(item.arg is None for item in given[0].keywords):
            yield Hit(
                function.file,
                given[0],
                "the scheduler's own timesteps stay, 1000 times the noise levels of the trajectory",
            )


def _otherwise(new: str) -> dict[str, list[tuple[str, str]] | str]:
    """Return the changes that compute the noise levels in another way."""
    return {"common": [(_LINSPACE, f"«{_LINSPACE}»"), (_SHIFT, new)], "spec": _SPEC}


FAILING = (
    Example(
        "computed and not set",
        {
            "common": [
                (
                    "    scheduler.set_timesteps(sigmas=sigmas, device=device)",
                    "    «scheduler.set_timesteps(num_inference_steps, device=device)»",
                )
            ]
        },
    ),
    Example(
        "upwards",
        {
            "common": [
                (
                    "torch.linspace(1, 0, max(num_inference_steps, 2), dtype=torch.float32)",
                    "«torch.linspace(0, 1, max(num_inference_steps, 2), dtype=torch.float32)»",
                )
            ]
        },
    ),
    Example(
        "the end kept",
        {
            "common": [
                (
                    "t = torch.linspace(1, 0, max(num_inference_steps, 2), dtype=torch.float32)",
                    "t = «torch.linspace(1, 0, max(num_inference_steps, 2), dtype=torch.float32)»",
                ),
                ("(SCHEDULE_SHIFT - 1) * t))[:-1].tolist()", "(SCHEDULE_SHIFT - 1) * t)).tolist()"),
            ]
        },
    ),
    Example(
        "another shift",
        {
            "common": [
                ("SCHEDULE_SHIFT = 3.0", "SCHEDULE_SHIFT = 1.0"),
                ("(SCHEDULE_SHIFT * t", "(«SCHEDULE_SHIFT» * t"),
            ],
            "spec": _SPEC,
        },
    ),
    Example(
        "no shift",
        {
            "common": [
                ("(SCHEDULE_SHIFT * t / (1 + (SCHEDULE_SHIFT - 1) * t))[:-1]", "t[:-1]"),
                (
                    "t = torch.linspace(1, 0, max(num_inference_steps, 2), dtype=torch.float32)",
                    "t = «torch.linspace(1, 0, max(num_inference_steps, 2), dtype=torch.float32)»",
                ),
            ],
            "spec": _SPEC,
        },
    ),
    Example("the inverse of the shift", _otherwise("(t / (SCHEDULE_SHIFT - (SCHEDULE_SHIFT - 1) * t))[:-1].tolist()")),
    Example("a bracket at another place", _otherwise("(SCHEDULE_SHIFT * t / (1 + SCHEDULE_SHIFT * t))[:-1].tolist()")),
    Example(
        "spaced once more", _otherwise("(SCHEDULE_SHIFT * t / (1 + (SCHEDULE_SHIFT - 1) * t))[:-1].square().tolist()")
    ),
    Example(
        "the first level lost", _otherwise("(SCHEDULE_SHIFT * t / (1 + (SCHEDULE_SHIFT - 1) * t))[1:].tolist()[:-1]")
    ),
    Example(
        "the terminal level among the timesteps", {"common": [(_TIMES, "scheduler.timesteps = «scheduler.sigmas»")]}
    ),
    Example(
        "in thousandths",
        {"common": [(_TIMES, "scheduler.timesteps = «scheduler.sigmas[:-1] * 1000»")], "spec": _SPEC},
    ),
    Example(
        "counted from the end",
        {"common": [(_TIMES, "scheduler.timesteps = «scheduler.sigmas[:-1].flip(0)»")], "spec": _SPEC},
    ),
    Example(
        "one step further",
        {"common": [(_TIMES, "scheduler.timesteps = «scheduler.sigmas[1:]»")], "spec": _SPEC},
    ),
    Example("shifted twice", {"common": [("set_shift(1.0)", "set_shift(«3.0»)")]}),
    Example(
        "timesteps of the scheduler",
        {
            "common": [
                ("    scheduler.timesteps = scheduler.sigmas[:-1].clone()\n", ""),
                (
                    "    scheduler.set_timesteps(sigmas=sigmas, device=device)",
                    "    «scheduler.set_timesteps(sigmas=sigmas, device=device)»",
                ),
            ]
        },
    ),
)
PASSING = (
    Example("the pipeline's", {"spec": _SPEC}),
    Example("nothing recorded"),
    Example(
        "as a numpy array",
        {
            "common": [
                (_LINSPACE, "torch.from_numpy(np.linspace(1.0, 0.0, max(num_inference_steps, 2)))"),
                ("import torch\n", "import numpy as np\nimport torch\n"),
            ],
            "spec": _SPEC,
        },
    ),
    Example(
        "without the end from the start",
        {
            "common": [
                (_LINSPACE, "torch.linspace(1.0, 0.0, max(num_inference_steps, 2))[:-1]"),
                (_SHIFT, "(t * SCHEDULE_SHIFT / (SCHEDULE_SHIFT * t + 1 - t)).tolist()"),
            ],
            "spec": _SPEC,
        },
    ),
    Example(
        "the timesteps in a list",
        {"common": [(_TIMES, "scheduler.timesteps = torch.tensor(sigmas, device=device)")], "spec": _SPEC},
    ),
    Example("the levels of a scheduler that is made to be asked", {"common": [ASKED]}),
    Example(
        "upwards, and turned",
        {
            "common": [
                (
                    "torch.linspace(1, 0, max(num_inference_steps, 2), dtype=torch.float32)",
                    "torch.linspace(0, 1, max(num_inference_steps, 2), dtype=torch.float32).flip(0)",
                )
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
