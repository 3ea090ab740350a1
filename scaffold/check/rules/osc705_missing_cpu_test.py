"""No test that runs on a CPU imports the package.

The pull-request checks run the tests named ``*_on_cpu.py``. Without one that imports the package, an import that
breaks, a registration that moves, or a schedule that changes is seen on the first GPU run at the earliest.

Instead: add ``tests/pipelines/test_<package>_on_cpu.py`` with a tiny model.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC705"
NAME = "missing-cpu-test"
SEVERITY = "warning"
CHECKLIST = ("S1",)
APPLIES = Applies(non_diffusers=True)
HELP = "add tests/pipelines/test_<package>_on_cpu.py"


def check(package: Package) -> Hits:
    """Look for tests that import the package; only where the tests of the tree can be seen."""
    project = package.project
    if project.alone or not package.registrations or not (project.complete or project.files("tests")):
        return
    file = package.init or package.files[0]
    if not package.cpu_tests:
        yield Hit(file, Span(1, 1, 1, 1), f"no test imports {package.name}")


_INIT = ("from .diffusers", "«»from .diffusers")
FAILING = (
    Example("no test", {"test": None, "init": [_INIT]}),
    Example("a test of something else", {"test": "def test_nothing() -> None:\n    assert True\n", "init": [_INIT]}),
)
PASSING = (
    Example("a test"),
    Example("a package of the diffusers guide", base="diffusers"),
)
