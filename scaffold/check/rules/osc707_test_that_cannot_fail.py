"""A test of the package asserts nothing.

It runs and passes whatever the code does: ``assert True``, a comparison without ``assert``, a call whose result nobody
looks at, a skip without a condition. The promise that its name makes is kept by nothing.

    def test_padding_changes_nothing():
        (together - alone).abs().max() <= 1e-6

Instead: ``assert (together - alone).abs().max() <= 1e-6``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import resolve
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC707"
NAME = "test-that-cannot-fail"
SEVERITY = "warning"
CHECKLIST = ("S1",)
APPLIES = Applies()
HELP = "compare what the test computes with what is expected"


_WORDS = ("assert", "raises", "warns", "fail", "check", "verify", "expect", "compare")


def check(package: Package) -> Hits:
    """Look at every test function in the files that import the package."""
    for file in package.cpu_tests:
        for function in _tests(file):
            yield from _of_test(file, function)


def _tests(file: PythonFile) -> Iterator[FunctionModel]:
    for function in file.all_functions:
        if function.name.startswith("test_") and "fixture" not in " ".join(
            map(ast.unparse, function.node.decorator_list)
        ):
            yield function


def _of_test(file: PythonFile, function: FunctionModel) -> Hits:
    index = file.index
    for decorator in function.node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if file.qualified(target) == "pytest.mark.skip":
            yield Hit(
                file, decorator, f"{function.name}() is skipped wherever it runs", "use skipif with what is missing"
            )
    for statement in index.nodes(ast.Expr, function.node):
        if isinstance(statement.value, ast.Compare):
            yield Hit(file, statement, f"{function.name}() compares and does not assert", "write assert in front of it")
    asserts = index.nodes(ast.Assert, function.node)
    for node in asserts:
        if (isinstance(node.test, ast.Constant) and node.test.value) or (
            isinstance(node.test, ast.Tuple) and node.test.elts
        ):
            yield Hit(file, node, f"{function.name}() asserts what is always true")
    if asserts:
        return
    called = [ast.unparse(call.func).lower() for call in function.calls]
    if not any(word in name for name in called for word in _WORDS):
        helpers = [resolve(file, call, function.cls) for call in function.calls]
        deep = any(isinstance(f, FunctionModel) and (f.nodes(ast.Assert) or f.nodes(ast.Raise)) for f in helpers)
        if not deep and not index.nodes(ast.Raise, function.node) and function.calls:
            yield Hit(file, function.node, f"{function.name}() asserts nothing")


FAILING = (
    Example(
        "nothing",
        {
            "test": [
                ("assert ToyDiffusion.__name__ and ToyPipelineWithLogProb.__name__", "print(ToyDiffusion.__name__)"),
                ("def test_names", "def «test_names»"),
            ]
        },
    ),
    Example(
        "always true", {"test": [("assert ToyDiffusion.__name__ and ToyPipelineWithLogProb.__name__", "«assert True»")]}
    ),
    Example(
        "no assert",
        {
            "test": [
                (
                    "assert ToyDiffusion.__name__ and ToyPipelineWithLogProb.__name__",
                    'assert ToyPipelineWithLogProb\n    «ToyDiffusion.__name__ == "Toy"»',
                )
            ]
        },
    ),
    Example(
        "skipped",
        {
            "test": [
                ("def test_names", "@«pytest.mark.skip»\ndef test_names"),
                ("from verl_omni", "import pytest\n\nfrom verl_omni"),
            ]
        },
    ),
)
PASSING = (
    Example("an assertion"),
    Example(
        "an error is expected",
        {
            "test": [
                (
                    "assert ToyDiffusion.__name__ and ToyPipelineWithLogProb.__name__",
                    "with pytest.raises(AttributeError):\n        ToyDiffusion.nothing(ToyPipelineWithLogProb)",
                ),
                ("from verl_omni", "import pytest\n\nfrom verl_omni"),
            ]
        },
    ),
    Example(
        "skipped where something is missing",
        {
            "test": [
                ("def test_names", '@pytest.mark.skipif(True, reason="no device")\ndef test_names'),
                ("from verl_omni", "import pytest\n\nfrom verl_omni"),
            ]
        },
    ),
)
