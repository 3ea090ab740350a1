"""A step of the trajectory is taken at the wrong place.

``all_latents`` holds one entry more than ``all_timesteps``: step ``t`` goes from ``latents[:, t]`` to
``latents[:, t + 1]``. With the same entry twice, or with the two exchanged, the log-prob is that of a step that never
happened; it is finite, and training runs.

    sample=latents[:, step], prev_sample=latents[:, step], timestep=timesteps[:, step]

Instead: ``sample=latents[:, step]``, ``prev_sample=latents[:, step + 1]``, ``timestep=timesteps[:, step]``.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from scaffold.check.example import Example
from scaffold.check.model.calls import has_unpacking, keyword
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.sde import sampling_argument, sampling_calls
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC220"
NAME = "wrong-trajectory-index"
SEVERITY = "error"
CHECKLIST = ("T5",)
APPLIES = Applies(objective="policy_gradient")
HELP = (
    "take latents[:, step] as the sample, latents[:, step + 1] as the previous sample, timesteps[:, step] as the time"
)
_KEEPING = {"float", "to", "clone", "detach", "double", "contiguous"}
_EXPECTED = {"sample": 0, "prev_sample": 1, "timestep": 0}


class Entry(NamedTuple):
    """``whole[:, step + offset]``; the offset is None for an entry that does not depend on the step."""

    whole: str
    offset: int | None
    node: ast.expr


def check(package: Package) -> Hits:
    """Look at what the scheduler gets, and at what the module gets."""
    side = side_of(package, "training")
    for function, call in sampling_calls(side):
        yield from _own_sample(function, call)
        entries = {}
        for name in _EXPECTED:
            value = sampling_argument(call, name)
            entry = _entry(function, value) if value is not None else None
            if entry is not None:
                entries[name] = entry
        sample = entries.get("sample")
        for name, entry in entries.items():
            # A trajectory that keeps the next latents apart counts from zero.
            if name == "prev_sample" and (sample is None or sample.whole != entry.whole):
                continue
            if entry.offset != _EXPECTED[name]:
                yield Hit(function.file, entry.node, f"{name} is {_shown(entry)}, where {_wanted(name)} belongs")
        yield from _other_levels(function, entries)
    for adapter in side.adapters:
        method = adapter.method("prepare_model_inputs")
        if method is None or method.is_abstract or len(method.positional) < 10:
            continue
        latents, timesteps = method.positional[2], method.positional[3]
        for node in method.file.index.nodes(ast.Subscript, method.node):
            if isinstance(node.value, ast.Name) and node.value.id in (latents, timesteps):
                entry = _entry(method, node)
                if entry is not None and entry.offset != 0:
                    yield Hit(
                        method.file, node, f"the module gets {_shown(entry)}, where the entry of this step belongs"
                    )
                elif isinstance(node.slice, ast.Name) and node.slice.id == method.positional[9]:
                    yield Hit(method.file, node, f"{ast.unparse(node)} is one sample; the step is the second dimension")
        for keys in package.model_inputs(adapter) or ():
            for key, value in keys.values.items() if keys is not None else ():
                yield from _whole(method, key, value)


def _own_sample(function: FunctionModel, call: ast.Call) -> Hits:
    """Look for a step that draws a next sample of its own instead of taking the trajectory's."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "sample_previous_step" and len(call.args) < 7:
        if not has_unpacking(call) and keyword(call, "prev_sample") is None:
            yield Hit(
                function.file, call.func, "prev_sample is not given: the log-prob is that of a newly drawn sample"
            )


def _other_levels(function: FunctionModel, entries: dict[str, Entry]) -> Hits:
    """Look for other entries of the timesteps in the same step, for the guidance perhaps."""
    level = entries.get("timestep")
    if level is None:
        return
    for node in function.nodes(ast.Subscript):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == level.whole and node is not level.node:
            entry = _entry(function, node)
            if entry is not None and entry.offset not in (0, None):
                yield Hit(function.file, node, f"{_shown(entry)} is the noise level of another step")


def _whole(method: FunctionModel, key: str, value: ast.expr) -> Hits:
    """Look for a whole trajectory where one of its entries belongs."""
    if key not in ("hidden_states", "latents", "sample", "timestep", "timesteps", "sigma"):
        return
    index = method.file.index
    if not index.contains(method.node, value):
        return
    for node in index.nodes(ast.Name, value):
        parent = index.parent(node)
        if node.id in method.positional[2:4] and not isinstance(parent, (ast.Subscript, ast.Attribute)):
            mentioned = {other.id for other in index.nodes(ast.Name, value)}
            if method.positional[9] not in mentioned:
                yield Hit(
                    method.file, node, f"{key} is made of all steps at once, where the entry of this step belongs"
                )


def _shown(entry: Entry) -> str:
    return ast.unparse(entry.node)


def _wanted(name: str) -> str:
    return "the entry after this step's" if name == "prev_sample" else "the entry of this step"


def _entry(function: FunctionModel, value: ast.expr, depth: int = 0) -> Entry | None:
    """Return which entry of a trajectory a value is, where that is plain."""
    if depth > 8:
        return None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _KEEPING:
        return _entry(function, value.func.value, depth + 1)
    if isinstance(value, ast.Name):
        bindings = reaching(function, value)
        if len(bindings) == 1 and bindings[0].kind == "variable" and bindings[0].value is not None:
            return _entry(function, bindings[0].value, depth + 1)
        return None
    if not (isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Tuple) and len(value.slice.elts) == 2):
        return None
    rows, at = value.slice.elts
    if not (isinstance(rows, ast.Slice) and rows.lower is None and rows.upper is None):
        return None
    known, offset = _offset(function, at)
    later = _later(function, value.value)
    if known and offset is not None and later is not None:
        return Entry(later[0], offset + later[1], value)
    return Entry(ast.unparse(value.value), offset, value) if known else None


def _later(function: FunctionModel, whole: ast.expr) -> tuple[str, int] | None:
    """Return the trajectory, and from which entry on it is kept, of ``following = latents[:, 1:]``."""
    bindings = reaching(function, whole) if isinstance(whole, ast.Name) else []
    kept = bindings[0].value if len(bindings) == 1 and bindings[0].kind == "variable" else None
    if not isinstance(kept, ast.Subscript) or not isinstance(kept.slice, ast.Tuple) or len(kept.slice.elts) != 2:
        return None
    rows, entries = kept.slice.elts
    whole_rows = isinstance(rows, ast.Slice) and rows.lower is None and rows.upper is None
    if not whole_rows or not isinstance(entries, ast.Slice) or entries.step is not None:
        return None
    first = function.file.value(entries.lower) if entries.lower is not None else 0
    return (ast.unparse(kept.value), first) if isinstance(first, int) and first >= 0 else None


def _offset(function: FunctionModel, at: ast.expr) -> tuple[bool, int | None]:
    """Return whether an index is plain, and what it adds to the step."""
    step = function.positional[-1] if function.positional else "step"
    if isinstance(at, ast.Constant) and isinstance(at.value, int):
        return True, None
    if isinstance(at, ast.UnaryOp) and isinstance(at.op, ast.USub) and isinstance(at.operand, ast.Constant):
        return True, None
    if isinstance(at, ast.Name):
        if at.id == step:
            return True, 0
        bindings = reaching(function, at)
        if len(bindings) == 1 and bindings[0].kind == "variable" and bindings[0].value is not None:
            return _offset(function, bindings[0].value)
        return False, None
    if isinstance(at, ast.BinOp) and isinstance(at.op, (ast.Add, ast.Sub)):
        known, base = _offset(function, at.left)
        number = function.file.value(at.right)
        if known and base is not None and isinstance(number, int):
            return True, base + (number if isinstance(at.op, ast.Add) else -number)
    return False, None


_NEXT = "latents[:, step + 1].float()"
_KEPT = (
    "        velocity = module(**model_inputs)[0].float()\n",
    "        following = latents[:, 1:]\n        velocity = module(**model_inputs)[0].float()\n",
)
FAILING = (
    Example("shifted twice", {"training": [_KEPT, (_NEXT, "«following[:, step + 1]».float()")]}),
    Example(
        "no next sample",
        {
            "training": [
                ("            prev_sample=latents[:, step + 1].float(),\n", ""),
                ("sqrt_dt = scheduler.sample_previous_step(", "sqrt_dt = «scheduler.sample_previous_step»("),
            ]
        },
    ),
    Example(
        "another level for the guidance",
        {"training": [("sigma = timesteps[:, step].double()", "sigma = «timesteps[:, step + 1]».double()")]},
    ),
    Example("one sample", {"training": [('"hidden_states": latents[:, step]', '"hidden_states": «latents[step]»')]}),
    Example("all timesteps", {"training": [('"timestep": timesteps[:, step]', '"timestep": «timesteps»')]}),
    Example(
        "the same entry twice",
        {"training": [("prev_sample=latents[:, step + 1].float()", "prev_sample=«latents[:, step]».float()")]},
    ),
    Example(
        "exchanged",
        {
            "training": [
                ("            sample=latents[:, step].float()", "            sample=«latents[:, step + 1]».float()"),
                ("prev_sample=latents[:, step + 1].float()", "prev_sample=«latents[:, step]».float()"),
            ]
        },
    ),
    Example(
        "the next timestep",
        {"training": [("            timestep=timesteps[:, step],", "            timestep=«timesteps[:, step + 1]»,")]},
    ),
    Example(
        "always the first entry",
        {"training": [('"hidden_states": latents[:, step]', '"hidden_states": «latents[:, 0]»')]},
    ),
    Example(
        "behind a name",
        {
            "training": [
                (
                    "        _, log_prob, prev",
                    "        after = «latents[:, step + 2]».float()\n        _, log_prob, prev",
                ),
                ("prev_sample=latents[:, step + 1].float()", "prev_sample=after"),
            ]
        },
    ),
)
PASSING = (
    Example("the next latents by themselves", {"training": [_KEPT, (_NEXT, "following[:, step].float()")]}),
    Example("from this entry to the next"),
    Example(
        "the index behind a name",
        {
            "training": [
                ("        _, log_prob, prev", "        after = step + 1\n        _, log_prob, prev"),
                ("latents[:, step + 1]", "latents[:, after]"),
            ]
        },
    ),
    Example(
        "next latents of their own",
        {
            "training": [
                (
                    "prev_sample=latents[:, step + 1].float()",
                    'prev_sample=scheduler_inputs["old_prev_sample_mean"][:, step].float()',
                )
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
