"""Which files of a package hold upstream's own code: the denoiser that ``new`` ported from vllm-omni."""

from __future__ import annotations

import ast

from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.recorded_facts import recorded


def written_files(package: Package) -> list[PythonFile]:
    """Return the package's files without the one that defines the ported denoiser.

    What stands there runs in the rollout as well. A rule about style, speed or care of code that a person wrote does
    not look into it; `verify` compares what it computes.
    """
    entry = recorded(package, "port", "entry")
    return [file for file in package.files if entry is None or not _defines(file, entry)]


def _defines(file: PythonFile, name: str) -> bool:
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in file.tree.body)
