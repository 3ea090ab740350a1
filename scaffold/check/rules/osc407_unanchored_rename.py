"""Loading renames checkpoint keys with ``replace``, wherever the text stands in the name.

``name.replace("model.", "")`` also changes ``vision_model.`` and ``language_model.model.model.``. On today's
checkpoint it may do the right thing; on another one, or on the way back, it changes names that nobody meant.

    name = name.replace("model.", "")

Instead: test the prefix and cut it off: ``name.removeprefix("model.")``, or a table of prefixes.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import keyword
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.key_tables import loading_functions
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC407"
NAME = "unanchored-rename"
SEVERITY = "warning"
CHECKLIST = ("M6", "pitfall 20", "pitfall 21")
APPLIES = Applies(non_diffusers=True)
HELP = "test the prefix and cut it off, or use a table of prefixes"


def check(package: Package) -> Hits:
    """Look for ``replace`` with pieces of parameter names in the functions that loading gets to."""
    for function in loading_functions(package):
        if function.file not in package.files:
            continue
        for call in function.calls:
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "replace" or len(call.args) < 2:
                continue
            old = function.file.value(call.args[0])
            plain = isinstance(call.func.value, (ast.Name, ast.Call, ast.Subscript))
            if not plain or not isinstance(old, str) or "." not in old or " " in old or old.startswith("."):
                continue
            counted = len(call.args) > 2 or keyword(call, "count") is not None
            if not (counted and _guarded(function, call, old)) and not _guarded(function, call, old):
                yield Hit(function.file, call, f"replace({old!r}, …) changes {old!r} wherever it stands in a key")


def _guarded(function: FunctionModel, call: ast.Call, old: str) -> bool:
    """Whether a test around the call says that the name begins with the text."""
    assert isinstance(call.func, ast.Attribute)
    for outer in function.file.index.ancestors(call):
        if isinstance(outer, (ast.If, ast.IfExp)):
            for node in ast.walk(outer.test):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr == "startswith"
                    and node.args
                    and function.file.value(node.args[0]) == old
                ):
                    return True
    return False


_LOAD = "state[target] = file.get_tensor(source)"
FAILING = (
    Example("in the loop", {"model": [(_LOAD, 'state[«target.replace("model.", "")»] = file.get_tensor(source)')]}),
    Example(
        "in the mapping function",
        {
            "model": [
                (
                    "    for source, target in KEY_MAP:\n        if name",
                    '    name = «name.replace("module.model.", "model.")»\n'
                    "    for source, target in KEY_MAP:\n        if name",
                )
            ]
        },
    ),
)
PASSING = (
    Example("by prefix"),
    Example("cut off", {"model": [(_LOAD, 'state[target.removeprefix("module.")] = file.get_tensor(source)')]}),
    Example(
        "after a test",
        {
            "model": [
                (
                    _LOAD,
                    'if target.startswith("module."):\n'
                    '                        target = target.replace("module.", "", 1)\n'
                    "                    " + _LOAD,
                )
            ]
        },
    ),
)
