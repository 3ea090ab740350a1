"""No test that runs on a CPU imports the package.

The pull-request checks run the tests named ``*_on_cpu.py``. Without one that imports the package, an import that
breaks, a registration that moves, or a schedule that changes is seen on the first GPU run at the earliest.

Instead: add ``tests/pipelines/test_<package>_on_cpu.py`` with a tiny model.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.model.python import PythonFile
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
    for test in package.cpu_tests:
        mark = _skipped(test)
        if mark is not None:
            yield Hit(test, mark, f"no test of {test.name} ever runs", "skip only what something is missing for")


def _skipped(file: PythonFile) -> ast.expr | None:
    """Return what leaves out the whole file wherever it runs."""
    for binding in file.names.get("pytestmark", ()):
        value = binding.value
        if value is None or file.index.parent(binding.node) not in file.tree.body:
            continue
        for mark in value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]:
            target = mark.func if isinstance(mark, ast.Call) else mark
            if file.qualified(target) == "pytest.mark.skip":
                return mark
            if file.qualified(target) == "pytest.mark.skipif" and isinstance(mark, ast.Call) and mark.args:
                if isinstance(mark.args[0], ast.Constant) and mark.args[0].value:
                    return mark
    for statement in file.tree.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and file.qualified(call.func) == "pytest.skip":
            return call
    return None


FAILING = (
    Example("no test", test=None, init=("from .diffusers_training_adapter", "«»from .diffusers_training_adapter")),
    Example(
        "a test of something else",
        test="def test_nothing() -> None:\n    assert True\n",
        init=("from .diffusers_training_adapter", "«»from .diffusers_training_adapter"),
    ),
)
PASSING = (
    Example(
        "skipped where something is missing",
        test=(
            "import sys\n\nimport pytest\n\nfrom verl_omni.pipelines.toy_flow_grpo import ToyDiffusion, ToyPipelineWithLogProb\n\n\ndef test_names() -> None:\n    assert ToyDiffusion.__name__ and ToyPipelineWithLogProb.__name__\n\n"
            'pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no shared memory")\n'
        ),
    ),
)
