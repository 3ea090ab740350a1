"""A package imports something of vllm-omni that the version to come does not have.

What the checkout pins is what gets installed. The import fails when the registry imports the package, and with it every
other pipeline of the checkout. The names are looked up in the source of that version where it is on this machine, in the
cache of `omni-scaffold` or installed; where it is not, nothing is said.

    from vllm_omni.diffusion.models.toy.pipeline_toy import ToyPipeline      # came with a later release

Instead: pin the version that has it, or take the package to the pinned one with `omni-scaffold update`.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.pinned_upstream import upstream_of
from scaffold.check.model.python import PythonFile
from scaffold.check.rule import Applies, Hit, Hits
from scaffold.upstream.source import PACKAGE

ID = "OSC531"
NAME = "missing-upstream-name"
SEVERITY = "error"
CHECKLIST = ("W1", "W2", "pitfall 25")
APPLIES = Applies(diffusion=None, resolved=False)
HELP = "pin the version that has it, or carry the package to the pinned one"
_CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def check(package: Package) -> Hits:
    """Look up every module and name of vllm-omni that the package imports."""
    found = upstream_of(package)
    if found is None:
        return
    version, exports = found
    for file in package.files:
        for node in file.index.nodes(ast.Import):
            for item in node.names:
                if _is_upstream(item.name) and not _guarded(file, node) and exports.lacks_module(item.name):
                    yield Hit(file, item, f"vllm-omni {version} has no module {item.name}")
        for origin in file.index.nodes(ast.ImportFrom):
            module = origin.module or ""
            if origin.level or not _is_upstream(module) or _guarded(file, origin):
                continue
            if exports.lacks_module(module):
                yield Hit(file, origin, f"vllm-omni {version} has no module {module}")
                continue
            for item in origin.names:
                if exports.lacks(module, item.name):
                    yield Hit(file, item, f"{module} of vllm-omni {version} has no {item.name}")


def _is_upstream(module: str) -> bool:
    return f"{module}.".startswith(f"{PACKAGE}.")


def _guarded(file: PythonFile, node: ast.AST) -> bool:
    """Whether the import is made under a condition, or what catches its failure stands around it."""
    for outer in file.index.ancestors(node):
        if isinstance(outer, ast.If):
            return True
        if isinstance(outer, ast.Try):
            for handler in outer.handlers:
                caught = handler.type
                names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
                if caught is None or any(isinstance(name, ast.Name) and name.id in _CAUGHT for name in names):
                    return True
    return False


_UPSTREAM = {
    "vllm_omni/__init__.py": "",
    "vllm_omni/diffusion/data.py": "class DiffusionOutput: ...\n\n\nclass OmniDiffusionConfig: ...\n",
    "vllm_omni/diffusion/models/toy/pipeline_toy.py": "from .base import *\n",
    "vllm_omni/diffusion/models/toy/base.py": "class ToyPipeline: ...\n",
    "vllm_omni/diffusion/worker/request_batch.py": (
        "try:\n    from vllm_omni.fast import DiffusionRequestBatch\nexcept ImportError:\n    DiffusionRequestBatch = None\n"
    ),
}
FAILING = (
    Example(
        "a name of a later release",
        {**_UPSTREAM, "vllm_omni/diffusion/data.py": "class DiffusionOutput: ...\n"},
        rollout=(" OmniDiffusionConfig\n", " «OmniDiffusionConfig»\n"),
    ),
    Example(
        "a module that is gone",
        _UPSTREAM,
        rollout=("ToyPipeline\n", "ToyPipeline\nimport «vllm_omni.diffusion.older»\n"),
    ),
)
PASSING = (Example("all of it is there", _UPSTREAM),)
