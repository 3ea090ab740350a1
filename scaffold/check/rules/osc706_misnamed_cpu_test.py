"""A test of the package is not named ``*_on_cpu.py``.

The pull-request checks pick CPU tests by their name. A test below ``tests/pipelines/`` with another ending is run by
nobody.

Instead: end the file's name in ``_on_cpu.py``.
"""

from __future__ import annotations

from scaffold.check.example import FILES, Example, base_tree
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC706"
NAME = "misnamed-cpu-test"
SEVERITY = "warning"
CHECKLIST = ("S1",)
APPLIES = Applies()
HELP = "rename it to end in _on_cpu.py"


def check(package: Package) -> Hits:
    """Look at the names of the tests that import the package."""
    for file in package.cpu_tests:
        if file.path.startswith("tests/pipelines/") and not file.name.endswith("_on_cpu.py"):
            yield Hit(file, Span(1, 1, 1, 1), f"{file.name} is not run by the checks, which look for *_on_cpu.py")


_TEXT = base_tree("non_diffusers")[FILES["test"]]
FAILING = (Example("another ending", {"test": None, "tests/pipelines/test_toy_flow_grpo.py": "«»" + _TEXT}),)
PASSING = (
    Example("the right ending"),
    Example("a helper of tests", {"tests/pipelines/toy_helpers.py": _TEXT}),
)
