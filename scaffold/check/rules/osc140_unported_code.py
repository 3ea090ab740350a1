"""Code of the pipeline's that is still to be ported.

A package that ``new`` grades partial has everything that vllm-omni's source establishes. What it does not stands as a
``NotImplementedError`` that names the file and line to port, and in the list of the package's README. The package is
registered and can be imported, but training stops there.

    def to_velocity(output):
        raise NotImplementedError("the velocity …: port vllm_omni/….py:834 of vllm-omni 0.30.0")

Instead: write what the line of vllm-omni does. The other rules say what else the package lacks until then.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits
from scaffold.files.parsing import unwritten

ID = "OSC140"
NAME = "unported-code"
SEVERITY = "warning"
CHECKLIST = ("M1",)
APPLIES = Applies(diffusion=None)
HELP = "write what that line of vllm-omni does in its place"


def check(package: Package) -> Hits:
    """Search for the errors that `new` writes in place of what it could not establish."""
    for file in package.files:
        if b"NotImplementedError" not in file.data:
            continue
        for node in file.index.nodes(ast.Raise):
            found = unwritten(node)
            if found is not None:
                yield Hit(file, node, f"{found.what}: not written yet, upstream's is at {found.place}")


FAILING = (
    Example(
        "a pipeline beside vllm-omni",
        common=(
            "return None\n",
            "return None\n    if size == 1:\n        «raise NotImplementedError('one: `with x:` is not followed: port own/pipe.py:12 of vllm-omni 0.30.0+own.g01234567')»\n",
        ),
    ),
    Example(
        "the place to port",
        common=(
            "return None\n",
            "return None\n    if size == 1:\n        «raise NotImplementedError('a window of one: port vllm_omni/diffusion/models/toy/pipeline_toy.py:12 of vllm-omni 0.30.0')»\n",
        ),
    ),
)
PASSING = (
    Example(
        "another reason to stop",
        common=(
            "return None\n",
            ("return None\n    if size == 1:\n        raise NotImplementedError('a window of one is not meant')\n"),
        ),
    ),
)
