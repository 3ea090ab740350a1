"""The guidance interval may reach the pipeline as a list.

Hydra and JSON give lists; a pipeline that compares its interval with a tuple, or keeps it as part of a key, takes the
list for another value and leaves guidance on or off everywhere. Training, which unpacks the two numbers, notices
nothing.

    CFG_DEFAULTS = {"cfg_interval": [0.0, 1.0]}

Instead: a tuple in the table, and ``tuple(…)`` or ``(float(low), float(high))`` around what the request brings.
"""

from __future__ import annotations

import ast

from scaffold.check.editing import replace_expression
from scaffold.check.example import Example
from scaffold.check.model.dataflow import origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.guidance_defaults import is_guidance, shared_tables
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC219"
NAME = "mutable-cfg-interval"
SEVERITY = "warning"
CHECKLIST = ("pitfall 41",)
APPLIES = Applies(objective="policy_gradient")
HELP = "make it a tuple: in the table, and around what the request brings"
FIX_SAFETY = "safe"


def check(package: Package) -> Hits:
    """Look at the table's interval, and whether the rollout makes a tuple of the request's."""
    rollout = side_of(package, "rollout")
    for file, _, table in shared_tables(package):
        if not isinstance(table, ast.Dict):
            continue
        for key, value in zip(table.keys, table.values, strict=True):
            name = getattr(key, "value", None)
            if not (is_guidance(name) and isinstance(name, str) and "interval" in name):
                continue
            if isinstance(value, ast.List):
                yield Hit(file, value, f"{name} is a list, which the pipeline may compare with a tuple", data=value)
            elif rollout.functions and key is not None and not _made_tuple(rollout, name):
                yield Hit(
                    file, key, f"{name} of a request is a list, and the rollout makes no tuple of it", fixable=False
                )


def fix(hit: Hit) -> str | None:
    """Write a tuple in the place of the list."""
    if not isinstance(hit.data, ast.List):
        return None
    assert isinstance(hit.file, PythonFile)
    items = ", ".join(ast.unparse(item) for item in hit.data.elts)
    return replace_expression(hit.file, hit.data, f"({items}{',' if len(hit.data.elts) == 1 else ''})")


def _made_tuple(side: Side, name: str) -> bool:
    """Whether the interval goes through ``tuple(…)`` or is put together as a pair."""
    made = False
    for function in side.functions:
        index = function.file.index
        for call in function.calls:
            if function.file.qualified(call.func) == "tuple" and call.args:
                made = made or name in origin(side, function, call.args[0]).strings
        for statement in index.nodes(ast.Assign, function.node):
            for target in statement.targets:
                of_interval = isinstance(target, ast.Subscript) and function.file.value(target.slice) == name
                if of_interval and isinstance(statement.value, ast.Tuple):
                    made = True
                elif of_interval and _is_list(function, statement.value):
                    return False
        for table in index.nodes(ast.Dict, function.node):
            for key, value in zip(table.keys, table.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name and isinstance(value, ast.Tuple):
                    made = True
    return made


def _is_list(function: FunctionModel, value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return function.file.qualified(value.func) == "list"
    return isinstance(value, (ast.List, ast.ListComp))


_LINES = '    low, high = values["cfg_interval"]\n    values["cfg_interval"] = (float(low), float(high))\n'
_INTERVAL = '"cfg_interval": (0.0, 1.0)'
FAILING = (
    Example("a list in the table", {"common": [(_INTERVAL, '"cfg_interval": «[0.0, 1.0]»')]}),
    Example("a list is passed on", {"common": [(_LINES, ""), (_INTERVAL, '«"cfg_interval"»: (0.0, 1.0)')]}),
    Example(
        "made a list",
        {
            "common": [
                ("(float(low), float(high))", "[float(low), float(high)]"),
                (_INTERVAL, '«"cfg_interval"»: (0.0, 1.0)'),
            ]
        },
    ),
)
PASSING = (
    Example("a pair is made of it"),
    Example("tuple()", {"common": [(_LINES, '    values["cfg_interval"] = tuple(values["cfg_interval"])\n')]}),
    Example("no interval", base="diffusers"),
)
