"""What the commands may not import, and that they work where it is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEAVY = ("torch", "peft", "diffusers", "transformers", "vllm_omni", "vllm", "tensordict", "numpy")
# A module that is None in sys.modules cannot be imported, as if it were not installed.
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r}))\nfrom scaffold.cli import main\nmain()\n"
IMPORTED = """
import sys
from scaffold.cli import main
try:
    main()
finally:
    print(*sorted(name for name in sys.modules if "." not in name), file=sys.stderr)
"""


def modules_of(outcome: Any) -> set[str]:
    """Return the top-level modules that were imported."""
    assert outcome.code == 0, outcome.err
    return set(outcome.err.split())


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["-h"], ["--version"], ["new", "--help"], ["inspect", "--help"]],
    ids=lambda arguments: " ".join(arguments),
)
def test_help_is_light(scaffold_child: Callable[..., Any], arguments: list[str]) -> None:
    imported = modules_of(scaffold_child(*arguments, code=IMPORTED))
    assert "typer" in imported
    forbidden = {
        *HEAVY,
        "libcst",
        "jinja2",
        "rich",
        "safetensors",
        "huggingface_hub",
        "yaml",
        "ruff",
        "tomli_w",
        "tomlkit",
    }
    assert not imported & forbidden


@pytest.mark.upstream
def test_inspect_works_without_torch(scaffold_child: Callable[..., Any]) -> None:
    printed = scaffold_child("inspect", "bagel", "--vllm-omni", "0.27.0rc1", "--format", "json", code=WITHOUT).success()
    assert json.loads(printed)["answers"]["scheduler"]["shift"] == 3.0


@pytest.mark.upstream
def test_inspect_as_text_works_without_torch(scaffold_child: Callable[..., Any]) -> None:
    said = " ".join(scaffold_child("inspect", "bagel", "--vllm-omni", "0.27.0rc1", code=WITHOUT).success().split())
    assert "class none of its own: it is handed in" in said
    assert "call scheduler.step" in said
    assert "nor the class that its weights are loaded into" in said


@pytest.mark.upstream
def test_new_works_without_torch(
    scaffold_child: Callable[..., Any], reference: Path, tmp_path: Path, tree_of: Callable[[Path], Any]
) -> None:
    out = tmp_path / "out"
    scaffold_child("new", "bagel", "--vllm-omni", "0.27.0rc1", "--patch", "--out", out, code=WITHOUT).success()
    assert tree_of(out) == tree_of(reference)


@pytest.mark.upstream
def test_new_imports_neither_torch_nor_vllm_omni(scaffold_child: Callable[..., Any], tmp_path: Path) -> None:
    imported = modules_of(
        scaffold_child("new", "bagel", "--vllm-omni", "0.27.0rc1", "--patch", "--out", tmp_path / "out", code=IMPORTED)
    )
    assert "jinja2" in imported
    assert not imported & {*HEAVY, "libcst"}


def test_reader_that_closes_the_pipe_is_no_traceback(reference: Path, tmp_path: Path) -> None:
    spec = next(reference.glob("verl_omni/pipelines/*/scaffold.toml"))
    command = [
        sys.executable,
        "-m",
        "scaffold",
        "new",
        "bagel",
        "--spec",
        spec,
        "--patch",
        "--out",
        tmp_path / "out",
        "--diff",
    ]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).resolve().parents[2]
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.read(10)
    child.stdout.close()
    error = child.stderr.read().decode()
    child.stderr.close()
    child.wait(timeout=60)
    assert "Traceback" not in error
    assert "Exception" not in error


@pytest.mark.parametrize(
    "arguments",
    [[], ["nosuchcommand"], ["inspect"], ["inspect", "bagel", "--format", "xml"], ["--nosuchoption"]],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_misuse_is_exit_code_2_on_one_line(scaffold_child: Callable[..., Any], arguments: list[str]) -> None:
    outcome = scaffold_child(*arguments)
    if not arguments:
        # The help is shown.
        assert outcome.code in (0, 2)
        assert "inspect" in outcome.out + outcome.err
        return
    outcome.refusal()


def test_check_ends_with_what_is_next(reference: Path, scaffold_child: Callable[..., Any]) -> None:
    last = scaffold_child("check", reference).success().splitlines()[-1]
    package = reference / "verl_omni/pipelines/bagel_flow_grpo"
    assert last.removeprefix("next: `omni-scaffold verify ").removesuffix("` runs it on a tiny model") in (
        str(package),
        str(package.relative_to(Path.cwd())) if package.is_relative_to(Path.cwd()) else "",
    )
    assert "next:" not in scaffold_child("check", reference, "--format", "github").success()
