"""What ``verl_omni/pipelines/__init__.py`` states for each package: the three edits that register it."""

from __future__ import annotations

import ast
import re

from scaffold.check.model.python import PythonFile
from scaffold.upstream.exports import absolute_module

_STAR = re.compile(r"^from \.(\w+) import \*")
_ALL = re.compile(r"^__all__\s*\+?=.*?\b(\w+)\.__all__")
# No two adjacent runs of blanks: a line of blanks would match them in quadratically many ways.
_ANEW = re.compile(
    r"^__all__\s*=\s*(?:(?:list|tuple|sorted)?[(\[]\s*)?\*?(\w+)\.__all__\s*(?:,\s*)?(?:[)\]]\s*)?(?:#.*)?$"
)
_NAME = re.compile(r"^\s*(\w+)\s*(?:,\s*)?(?:#.*)?$")
_IMPORTERS = ("import_module", "__import__", "iter_modules", "walk_packages")
_FROM = re.compile(r"^from \. import (.*)$")


class Registry:
    """The registry of packages.

    Args:
        file: where it stands; partial where only a patch shows it.

    Attributes:
        imported: package -> line of its name in ``from . import (…)``.
        starred: package -> line of ``from .package import *``.
        exported: package -> line that adds its ``__all__``.
        replaced: package -> line that replaces all earlier names with its ``__all__``.
        known: False where the file cannot be parsed or imports by name at run time, so that nothing may be concluded
            from an absence.
    """

    def __init__(self, file: PythonFile) -> None:
        self.file = file
        self.imported: dict[str, int] = {}
        self.starred: dict[str, int] = {}
        self.exported: dict[str, int] = {}
        self.replaced: dict[str, int] = {}
        self.known = True

    def missing(self, package: str) -> list[str]:
        """Return which of the three edits a package lacks, as it would be written."""
        lacking = []
        # The star import binds the package's name as well; a registry may do without the list, for all of them.
        lists_packages = any(name in self.imported for name in self.starred)
        if package not in self.imported and (lists_packages or package not in self.starred):
            lacking.append(f"`{package}` in `from . import (…)`")
        if package not in self.starred:
            lacking.append(f"`from .{package} import *`")
        if package not in self.exported:
            lacking.append(f"`__all__ += list({package}.__all__)`")
        return lacking


def read_registry(file: PythonFile) -> Registry:
    """Read the registry; of a partial file line by line."""
    registry = Registry(file)
    if file.partial:
        _read_lines(registry)
    elif file.problem is not None:
        registry.known = False
    else:
        _read_tree(registry)
    return registry


def _imports_by_name(file: PythonFile) -> bool:
    """Whether a call imports a module whose name is made when it runs, in a loop over names say."""
    called = [node for node in ast.walk(file.tree) if isinstance(node, ast.Call)]
    return any(
        ast.unparse(node.func).rpartition(".")[2] in _IMPORTERS
        and not (node.args and isinstance(node.args[0], ast.Constant))
        for node in called
    )


def _read_tree(registry: Registry) -> None:
    file = registry.file
    registry.known = not _imports_by_name(file)
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ImportFrom):
            module = absolute_module(file.scopes.package, node)
            for alias in node.names:
                if module == file.module and alias.name != "*":
                    registry.imported[alias.name] = alias.lineno
                elif alias.name == "*" and module and module.startswith(file.module + "."):
                    registry.starred[module[len(file.module) + 1 :].partition(".")[0]] = node.lineno
        elif isinstance(node, ast.Attribute) and node.attr == "__all__" and isinstance(node.value, ast.Name):
            registry.exported[node.value.id] = node.lineno
    collected = False
    for statement in file.tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            continue
        parts = list(ast.walk(statement.value)) if isinstance(statement, ast.Assign) else []
        exports = [n for n in parts if isinstance(n, ast.Attribute) and n.attr == "__all__"]
        kept = any(isinstance(n, ast.Name) and n.id == "__all__" for n in parts)
        if collected and not kept and len(exports) == 1 and isinstance(exports[0].value, ast.Name):
            registry.replaced[exports[0].value.id] = statement.lineno
        collected = collected or any(isinstance(n, ast.Attribute) and n.attr == "__all__" for n in ast.walk(statement))


def _read_lines(registry: Registry) -> None:
    inside = collected = False
    for number, line in enumerate(registry.file.lines, start=1):
        start = _FROM.match(line)
        if start:
            inside = "(" in start[1] and ")" not in start[1]
            for name in re.findall(r"\w+", start[1].partition("#")[0]):
                registry.imported[name] = number
        elif inside and line.startswith(")"):
            inside = False
        elif match := _STAR.match(line):
            inside = False
            registry.starred[match[1]] = number
        elif match := _ALL.match(line):
            registry.exported[match[1]] = number
            if collected and _ANEW.match(line):
                registry.replaced[match[1]] = number
            collected = True
        elif match := _NAME.match(line):
            # Names between the brackets of an import whose head is not among the known lines.
            if line[:1] in (" ", "\t"):
                registry.imported[match[1]] = number
