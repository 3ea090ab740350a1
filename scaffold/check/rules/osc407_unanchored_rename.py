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
from scaffold.check.model.key_tables import key_tables, loading_functions
from scaffold.check.model.package import Package
from scaffold.check.model.ported_code import written_files
from scaffold.check.model.streams import derived, reads
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC407"
NAME = "unanchored-rename"
SEVERITY = "warning"
CHECKLIST = ("M6", "pitfall 20", "pitfall 21")
APPLIES = Applies(non_diffusers=True)
HELP = "test the prefix and cut it off, or use a table of prefixes"


def check(package: Package) -> Hits:
    """Look for ``replace`` with pieces of parameter names in the functions that loading gets to."""
    tables = {table.name for table in key_tables(package) if not table.ignores}
    written = written_files(package)
    readers = [f for file in package.files for f in file.all_functions if _names(f) & tables]
    for function in dict.fromkeys((*loading_functions(package), *readers)):
        if function.file not in written:
            continue
        for call in function.calls:
            if _of_a_row(function, call, tables):
                text = f"{ast.unparse(call)} changes the key wherever the row's text stands in it"
                yield Hit(function.file, call, text, "cut the row's prefix off: target + name[len(source):]")
                continue
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "replace" or len(call.args) < 2:
                continue
            old = function.file.value(call.args[0])
            plain = isinstance(call.func.value, (ast.Name, ast.Call, ast.Subscript))
            if not plain or not isinstance(old, str) or "." not in old or " " in old or old.startswith("."):
                continue
            counted = len(call.args) > 2 or keyword(call, "count") is not None
            if not (counted and _guarded(function, call, old)) and not _guarded(function, call, old):
                yield Hit(function.file, call, f"replace({old!r}, …) changes {old!r} wherever it stands in a key")


def _names(function: FunctionModel) -> set[str]:
    return {node.id for node in function.nodes(ast.Name) if isinstance(node, ast.Name)}


def _of_a_row(function: FunctionModel, call: ast.Call, tables: set[str]) -> bool:
    """Whether a call replaces one side of a table's row by the other: ``name.replace(source, target)``."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "replace" or not _names(function) & tables:
        return False
    sides = {item.id for item in call.args if isinstance(item, ast.Name)}
    if len(call.args) != 2 or call.keywords or len(sides) != 2 or not isinstance(call.func.value, ast.Name):
        return False
    return sides <= derived(function, tables, reads)


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
        "by the row of a table",
        {
            "model": [
                (
                    "            return target + name[len(source) :]\n    for source, _",
                    "            return «name.replace(source, target)»\n    for source, _",
                )
            ]
        },
    ),
    Example(
        "on the way back",
        {"model": [("return source + name[len(target) :]", "return «name.replace(target, source)»")]},
    ),
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
