"""No source makes a reader take all memory or all time: each attack in a process of its own, under limits."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from greedy import FURTHER, GREEDY, in_body

from scaffold.check import check_paths, engine
from scaffold.check.catalogue import find_rule
from scaffold.check.example import base_tree
from scaffold.check.model.registry import read_registry
from scaffold.errors import ScaffoldError
from scaffold.limits.bounded import Budget, TooLargeError
from scaffold.plan.runner import RunnerEdit
from scaffold.target.pin import asked_of, pin_of

TESTS = Path(__file__).parents[1]


def _beside(path: str) -> Any:
    """Return a module of the tests of another room."""
    spec = importlib.util.spec_from_file_location(f"greedy_{Path(path).stem}", TESTS / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PIPELINES = _beside("inspect/synthetic.py")
SECONDS = 10
LONG = 5_000
MEMORY = 1 << 30


def under_limits(action: Callable[[], object]) -> str:
    """Run something in a fork; return how it ended: nothing, or what is wrong with the end."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
            spent = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
            resource.setrlimit(resource.RLIMIT_CPU, (spent + SECONDS, spent + SECONDS + 1))
            with contextlib.suppress(ScaffoldError):
                action()
        except BaseException:
            text = "".join(traceback.format_exception(*sys.exc_info(), limit=-6))[-4000:]
        os.write(write, text.encode(errors="replace"))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        found = stream.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return found


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.table] * (name in FURTHER)) for name in GREEDY])
def greedy(request: pytest.FixtureRequest) -> str:
    return GREEDY[request.param]


def test_a_value_that_is_looked_at_again_costs_steps_each_time() -> None:
    """A class's table of many small rows, read over and over, took 46 s before the steps were spent."""
    budget = Budget(1_000_000, TooLargeError)
    for _ in range(10):
        budget.hold([()] * 10_000)
    assert budget.spent > 20_000


def test_pipelines(greedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Python itself refuses to compile some of them; they are only read.
    monkeypatch.setattr(PIPELINES, "compile", lambda *_: None, raising=False)
    assert not under_limits(lambda: PIPELINES.look(tmp_path, f"{greedy}\n{PIPELINES.EULER}", init=greedy))


def test_packages(greedy: str, tmp_path: Path) -> None:
    for name, text in base_tree("non_diffusers").items():
        if name.startswith("verl_omni/pipelines/") and name.count("/") == 3:
            path = tmp_path / name.rpartition("/")[2]
            path.write_text(greedily(text, greedy) if path.suffix == ".py" else text, encoding="utf-8")
    assert not under_limits(lambda: check_paths([tmp_path]))


def greedily(text: str, greedy: str) -> str:
    """Return a module with the statements at the beginning of every function, long ones of the first alone."""
    lines = text.splitlines()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    firsts = [node.body[ast.get_docstring(node) is not None :][0] for node in functions]
    for first in sorted(firsts if len(greedy) < LONG else firsts[:1], key=lambda node: -node.lineno):
        lines.insert(first.lineno - 1, " " * first.col_offset + in_body(greedy, first.col_offset))
    return "\n".join(lines) + "\n"


BLANK = 200_000
SCRIPTS = {
    "blank lines": "\n" * BLANK,
    "blanks": " " * BLANK + "x\n",
    "signs": "+" * BLANK + "x\n",
    "heads of a table": "declare -A RUN_TEST=(\n" * (BLANK // 20),
}
REQUIREMENTS = {
    "blanks": f"vllm-omni{' ' * BLANK}x",
    "blanks behind an extra": f"vllm-omni[a]{' ' * BLANK}x",
    "blanks behind a sign": f"vllm-omni =={' ' * BLANK}x",
    "quotes": "'" * BLANK,
    "brackets": "vllm-omni[" * (BLANK // 10),
    "digits": f"vllm-omni==0{'a' * BLANK}*",
}


@pytest.mark.parametrize("text", SCRIPTS)
def test_scripts_of_a_checkout(text: str, tmp_path: Path) -> None:
    for name, content in base_tree("non_diffusers").items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.startswith("tests/") and name.endswith(".sh"):
            path.write_text(content + SCRIPTS[text])
        elif not content.startswith("-> "):
            path.write_text(content)
    assert not under_limits(lambda: check_paths([tmp_path], select=["OSC5", "OSC7"]))


@pytest.mark.parametrize("text", SCRIPTS)
def test_smoke_runners(text: str) -> None:
    runner = 'run_selected_test 0 "one" \\\n    bash a.sh\n' + SCRIPTS[text]
    edit = RunnerEdit("run.sh", "tests/a.sh", "toy")
    assert not under_limits(lambda: edit.apply(runner))
    assert not under_limits(lambda: edit.revert(runner + 'run_selected_test 1 "toy" \\\n    bash tests/a.sh\n'))


@pytest.mark.parametrize("text", REQUIREMENTS)
def test_requirements_of_a_checkout(text: str) -> None:
    read = {"requirements.txt": REQUIREMENTS[text]}.get
    assert not under_limits(lambda: (pin_of(read), asked_of(read)))


@pytest.mark.parametrize("line", ["__all__ = a.__all__{}x", "    name{}x", "__all__ ={}x", "__all__ = list({}x"])
def test_lines_of_a_patched_registry(line: str) -> None:
    text = f"__all__ = b.__all__\n{line.format(' ' * BLANK)}\n"
    file: Any = SimpleNamespace(partial=True, lines=text.splitlines())
    assert not under_limits(lambda: read_registry(file))


def test_a_rule_without_end_is_given_up(reference: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_: object) -> Iterator[Any]:
        while True:
            pass
        yield

    monkeypatch.setattr(engine, "EACH", 0.3)
    monkeypatch.setattr(engine, "chosen", lambda *_: [find_rule("OSC708")._replace(check=endless)])
    told = under_limits(lambda: refused(lambda: check_paths([next(reference.glob("verl_omni/pipelines/*"))])))
    assert "OSC708 fails on bagel_flow_grpo: CpuLimitError" in told
    assert "leave the rule out with --ignore OSC708" in told


def refused(action: Callable[[], object]) -> None:
    try:
        action()
    except ScaffoldError as error:
        raise AssertionError(error.line) from None
