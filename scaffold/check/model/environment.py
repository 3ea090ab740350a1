"""Conditions on variables of the environment, as they turn out where nobody has set those."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scaffold.check.model.calls import argument
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.values import UNKNOWN, known
from scaffold.operators import COMPARISONS

if TYPE_CHECKING:
    from scaffold.check.model.package import Package

_READS = ("os.environ.get", "os.getenv")
_TEXT: dict[str, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper, "strip": str.strip}


def needed_variable(file: PythonFile, node: ast.AST) -> str | None:
    """Return the variable of the environment without which a statement does not run; None where there is none."""
    inner = node
    for outer in file.index.ancestors(node):
        if isinstance(outer, ast.If):
            names = _variables(file, outer.test)
            if names and not any(inner is part for part in ast.walk(outer.test)):
                truth = _truth(file, outer.test)
                body = any(statement is inner for statement in outer.body)
                if truth is not UNKNOWN and truth is not body:
                    return names[0]
        inner = outer
    return None


def sets(package: Package, variable: str) -> bool:
    """Whether a script of the package, one that calls such scripts, or code of verl-omni sets a variable."""
    project, name = package.project, re.escape(variable)
    written = re.compile(rf"""(?<![\w${{]){name}["']?\s*[=:]|\bexport\s+{name}\b""".encode())
    scripts = (*package.launch_scripts, *package.e2e_scripts, *project.runners, *project.e2e_scripts)
    if any(written.search(file.data) for file in scripts):
        return True
    stored = re.compile(
        rf"""environ\[["']{name}["']\]\s*=[^=]|setdefault\(\s*["']{name}["']|["']{name}["']\s*:""".encode()
    )
    code = [file for path in project.files("verl_omni", ".py") if (file := project.source(path)) is not None]
    return any(stored.search(file.data) for file in code)


def _variables(file: PythonFile, test: ast.expr) -> list[str]:
    found = []
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and file.qualified(node.func) in _READS and node.args:
            found.append(file.value(node.args[0]))
        elif isinstance(node, ast.Compare) and any(file.qualified(part) == "os.environ" for part in node.comparators):
            found.append(file.value(node.left))
    return [name for name in found if isinstance(name, str)]


def _truth(file: PythonFile, node: ast.expr) -> Any:
    """Return whether an expression holds where no variable is set, `UNKNOWN` where that is not plain."""
    if isinstance(node, ast.BoolOp):
        # A part that is not plain may decide either way, unless another one has decided.
        decides = isinstance(node.op, ast.Or)
        values = [_truth(file, part) for part in node.values]
        if decides in values:
            return decides
        return UNKNOWN if UNKNOWN in values else not decides
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        value = _truth(file, node.operand)
        return UNKNOWN if value is UNKNOWN else not value
    value = _unset(file, node)
    return UNKNOWN if value is UNKNOWN else bool(value)


def _unset(file: PythonFile, node: ast.expr) -> Any:
    """Return what an expression is where no variable is set, `UNKNOWN` where that is not plain."""
    if isinstance(node, ast.BoolOp):
        value: Any = UNKNOWN
        for part in node.values:
            value = _unset(file, part)
            if value is UNKNOWN or bool(value) is isinstance(node.op, ast.Or):
                break
        return value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _truth(file, node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        if file.qualified(node.comparators[0]) == "os.environ":
            return isinstance(node.ops[0], ast.NotIn) if isinstance(node.ops[0], (ast.In, ast.NotIn)) else UNKNOWN
        left, right = _unset(file, node.left), _unset(file, node.comparators[0])
        compare = COMPARISONS.get(type(node.ops[0]))
        if UNKNOWN in (left, right) or compare is None:
            return UNKNOWN
        try:
            return compare(left, right)
        except TypeError:
            return UNKNOWN
    if isinstance(node, ast.Call):
        return _called(file, node)
    return _plain(file, node)


def _called(file: PythonFile, call: ast.Call) -> Any:
    name = file.qualified(call.func)
    if name in _READS:
        default = argument(call, "default", 1)
        return None if default is None else _plain(file, default)
    target = call.func
    if isinstance(target, ast.Attribute) and target.attr in _TEXT and not call.args:
        text = _unset(file, target.value)
        return _TEXT[target.attr](text) if isinstance(text, str) else UNKNOWN
    if name in ("int", "bool") and len(call.args) == 1:
        value = _unset(file, call.args[0])
        if name == "bool":
            return UNKNOWN if value is UNKNOWN else bool(value)
        return (
            int(value)
            if isinstance(value, int) or (isinstance(value, str) and value.isdecimal() and len(value) < 20)
            else UNKNOWN
        )
    return UNKNOWN


def _plain(file: PythonFile, node: ast.expr) -> Any:
    value = file.value(node)
    return value if known(value) else UNKNOWN
