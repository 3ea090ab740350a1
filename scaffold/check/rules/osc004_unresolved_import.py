"""A package imports a module or a name that is not there.

The import fails when the registry imports the package, and with it every other pipeline of the checkout; behind an
``except ImportError`` the adapter is silently missing instead.

    from .toy_modeling import ToyForTraining        # the file is toy_model.py

Instead: import from the file that defines the name.
"""

from __future__ import annotations

import ast
from difflib import get_close_matches

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.python import PythonFile
from scaffold.check.rule import Hit, Hits

ID = "OSC004"
NAME = "unresolved-import"
SEVERITY = "error"
CHECKLIST = ("W1", "W2", "pitfall 25")
HELP = "import what is there"


# Where verl-omni keeps what packages import, for trees that hold the package alone.
HOMES = {
    "NonDiffusersModelBase": "verl_omni.pipelines.non_diffusers_model_base",
    "DiffusionModelBase": "verl_omni.pipelines.model_base",
    "DiffusionI2IModelBase": "verl_omni.pipelines.model_base",
    "VllmOmniPipelineBase": "verl_omni.pipelines.model_base",
}


def check(package: Package) -> Hits:
    """Look for what every ``from … import …`` of the package names."""
    for file in package.files:
        for node in file.index.nodes(ast.ImportFrom):
            module = _module(file, node)
            if module is None or _guarded(file, node):
                continue
            if module.startswith(package.module + ".") or module == package.module:
                yield from _own(package, file, node, module)
            for item in node.names:
                home = HOMES.get(item.name)
                if home is not None and module.startswith("verl_omni.") and module != home:
                    if not _there(package, module, item.name):
                        yield Hit(file, item, f"{item.name} is in {home}, not in {module}")


def _module(file: PythonFile, node: ast.ImportFrom) -> str | None:
    if not node.level:
        return node.module
    parts = file.module.split(".")
    parts = parts[: len(parts) - node.level + (1 if file.is_package else 0)]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _guarded(file: PythonFile, node: ast.AST) -> bool:
    return any(
        isinstance(outer, ast.If) and "TYPE_CHECKING" in ast.unparse(outer.test) for outer in file.index.ancestors(node)
    )


def _there(package: Package, module: str, name: str) -> bool:
    other = package.project.module(module)
    return other is not None and (name in other.names or bool(other.stars) or other.problem is not None)


def _own(package: Package, file: PythonFile, node: ast.ImportFrom, module: str) -> Hits:
    other = package.project.module(module)
    folder = module.replace(".", "/")
    if other is None:
        if not package.project.files(folder, ""):
            near = get_close_matches(module.rpartition(".")[2], [item.stem for item in package.files], n=1)
            help = f"is {near[0]}.py meant?" if near else None
            yield Hit(file, node, f"there is no module {module}", help)
        return
    if other.problem is not None or other.stars or "__getattr__" in other.names:
        return
    for item in node.names:
        known = item.name == "*" or item.name in other.names
        if not known and package.project.module(f"{module}.{item.name}") is None:
            near = get_close_matches(item.name, list(other.names), n=1)
            yield Hit(file, item, f"{other.name} defines no {item.name}", f"is {near[0]} meant?" if near else None)


FAILING = (
    Example("another name", training=(" ToyForTraining\n", " «ToyTraining as ToyForTraining»\n"), also="OSC202"),
    Example(
        "another module of verl-omni",
        model=("non_diffusers_model_base import NonDiffusersModelBase", "model_base import «NonDiffusersModelBase»"),
    ),
)
PASSING = (
    Example(
        "for type checkers alone",
        training=(
            "import torch",
            ("from typing import TYPE_CHECKING\n\nimport torch\n\nif TYPE_CHECKING:\n    from .toy_types import Batch"),
        ),
    ),
)
