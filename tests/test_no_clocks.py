"""No test fails because the machine is busy: what takes how long is for benchmarks/, as ratios."""

from __future__ import annotations

import ast
from pathlib import Path

CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}


def clocks(tree: ast.AST) -> list[int]:
    """Return the lines that assert something about a clock, or about a name that holds what was made of one."""
    timed: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _reads_clock(node.value):
            timed |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
        and (
            _reads_clock(node.test)
            or any(isinstance(part, ast.Name) and part.id in timed for part in ast.walk(node.test))
        )
    ]


def _reads_clock(node: ast.AST) -> bool:
    calls = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
    return any((call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")) in CLOCKS for call in calls)


def test_no_test_asserts_how_long_something_takes() -> None:
    folder = Path(__file__).parent
    found = {
        str(file.relative_to(folder)): lines
        for file in sorted(folder.rglob("*.py"))
        if (lines := clocks(ast.parse(file.read_text(encoding="utf-8"))))
    }
    assert found == {}


def test_such_an_assertion_is_found() -> None:
    assert clocks(ast.parse("start = time.monotonic()\nassert time.monotonic() - start < 3")) == [2]


def test_one_by_way_of_a_name_is_found_too() -> None:
    text = "begin = time.perf_counter()\nrun()\ntook = perf_counter() - begin\nassert took < 3\nassert run()"
    assert clocks(ast.parse(text)) == [4]
