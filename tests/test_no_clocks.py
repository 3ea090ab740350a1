"""No test fails because the machine is busy: what takes how long is for benchmarks/, as ratios."""

from __future__ import annotations

import ast
from pathlib import Path

CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}


def clocks(tree: ast.AST) -> list[int]:
    """Return the lines that assert something about a clock."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
        and any(
            isinstance(call, ast.Call)
            and (call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")) in CLOCKS
            for call in ast.walk(node.test)
        )
    ]


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
