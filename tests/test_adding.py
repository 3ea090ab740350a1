"""A rule, a question, a block, a contract and a preset are one file each: a copy of the tool, and one file more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
REFERENCE = REPOSITORY / "reference_bagel"
PACKAGE = REFERENCE / "verl_omni" / "pipelines" / "bagel_flow_grpo"
Tool = Callable[..., str]

RULE = '''"""A model module says how many steps it was tried with.

    STEPS_TRIED = 4

Instead: leave it to the report.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC199"
NAME = "steps-tried"
SEVERITY = "warning"
CHECKLIST = ()
APPLIES = Applies()


def check(package: Package) -> Hits:
    """Look for the name."""
    for file in package.files:
        for binding in file.names.get("STEPS_TRIED", ()):
            yield Hit(file, binding.node, "a number of steps that was tried", "take it out")


FAILING = (Example("a number", common=("SCHEDULE_SHIFT = 3.0\\n", "SCHEDULE_SHIFT = 3.0\\n«STEPS_TRIED» = 4\\n")),)
PASSING = (Example("none"),)
'''
TABLES = '''

def other_tables(positions: Tensor, config: Any) -> RotaryTables:
    """Our own."""
    return plain_tables(2 * positions, config)
'''
QUESTION = '''"""How long the name of the pipeline's class is."""

from __future__ import annotations

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program

KEYS = ("detail.class_name_length",)


def answers(program: Program) -> dict[str, Fact]:
    """Count its letters."""
    return {KEYS[0]: fact(len(program.cls.name), [program.place(program.cls)])}
'''
CONTRACT = '''"""The package has a name."""

from __future__ import annotations

from typing import Any

from scaffold.verify.measured import Measured

ID = "package-name"
TITLE = "the package has a name"
PITFALLS = (1,)
LIMIT = 0.0


def run(subject: Any) -> Measured:
    """Look at it."""
    return Measured(f"it is {subject.name}", [], 0.0, LIMIT, "names")
'''
PRESET = """pipelines = ["BagelPipeline"]
base = "bagel"

[names]
display = "BAGEL of our own"
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of what the tool is made of, with its bytecode."""
    for name in ("scaffold", "templates", "runtime"):
        shutil.copytree(REPOSITORY / name, tmp_path / "tool" / name)
    return tmp_path / "tool"


@pytest.fixture
def tool(copied: Path) -> Tool:
    """The command of the copy."""

    def run(*arguments: object, code: int = 0) -> str:
        program = "import sys, scaffold.cli; sys.exit(scaffold.cli.run())"
        found = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(copied)},
            capture_output=True,
            text=True,
            check=False,
            cwd=copied,
        )
        assert found.returncode == code, found.stdout + found.stderr
        return found.stdout

    return run


def test_rule(copied: Path, tool: Tool, tmp_path: Path) -> None:
    (copied / "scaffold" / "check" / "rules" / "osc199_steps_tried.py").write_text(RULE, encoding="utf-8")
    assert "OSC199" in tool("check", "--list-rules")
    assert "STEPS_TRIED = 4" in tool("check", "--explain", "OSC199")
    tree = tmp_path / "tree"
    shutil.copytree(REFERENCE, tree)
    package = tree / PACKAGE.relative_to(REFERENCE)
    assert json.loads(tool("check", package, "--format", "json"))["findings"] == []
    with (package / "common.py").open("a", encoding="utf-8") as file:
        file.write("\n\nSTEPS_TRIED = 4\n")
    (finding,) = json.loads(tool("check", package, "--select", "OSC199", "--format", "json", code=1))["findings"]
    assert (finding["rule"], finding["severity"]) == ("OSC199", "warning")


@pytest.mark.upstream
def test_question(copied: Path, tool: Tool) -> None:
    (copied / "scaffold" / "inspect" / "questions" / "name_length.py").write_text(QUESTION, encoding="utf-8")
    said = tool("inspect", "bagel", "--vllm-omni", "0.27.0rc1", "--show", "detail.class_name_length")
    assert said.startswith(f"detail.class_name_length = {len('BagelPipeline')} (certain)")
    assert "class BagelPipeline" in said


@pytest.mark.upstream
def test_block(copied: Path, tool: Tool, tmp_path: Path) -> None:
    with (copied / "runtime/src/flow_grpo_runtime/layouts.py").open("a", encoding="utf-8") as file:
        file.write(TABLES)
    spec = tmp_path / "scaffold.toml"
    written = (PACKAGE / "scaffold.toml").read_text(encoding="utf-8")
    spec.write_text(f'{written}\n[architecture]\nrotary = "other"\n', encoding="utf-8")
    shutil.copy(PACKAGE / "scaffold.lock.toml", tmp_path)
    tool("new", "bagel", "--spec", spec, "--patch", "--out", tmp_path / "out")
    (module,) = (tmp_path / "out").rglob("bagel_model.py")
    assert "partial(other_tables, config=self.config)" in module.read_text(encoding="utf-8")


def test_contract(copied: Path, tool: Tool) -> None:
    (copied / "scaffold" / "verify" / "contracts" / "package_name.py").write_text(CONTRACT, encoding="utf-8")
    found = json.loads(tool("verify", REFERENCE, "--select", "package-name", "--format", "json"))
    (check,) = found["checks"]
    assert (check["id"], check["status"], check["reason"]) == (
        "package-name",
        "pass",
        "it is verl_omni.pipelines.bagel_flow_grpo",
    )


@pytest.mark.upstream
def test_preset(copied: Path, tool: Tool, tmp_path: Path) -> None:
    (copied / "scaffold" / "presets" / "our_bagel.toml").write_text(PRESET, encoding="utf-8")
    assert "our_bagel" in tool("preset", "list")
    tool(
        "new",
        "our_bagel",
        "--pipeline",
        "BagelPipeline",
        "--vllm-omni",
        "0.27.0rc1",
        "--patch",
        "--out",
        tmp_path / "out",
    )
    (page,) = (tmp_path / "out" / "examples").rglob("README.md")
    assert "BAGEL of our own" in page.read_text(encoding="utf-8")
