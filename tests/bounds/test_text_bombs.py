"""Text whose syntax tree would fill the memory is refused before it is parsed, in one line."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scaffold.files.parsing import MOST_PARTS, parse
from scaffold.upstream import locate

LIMIT = 600 << 20
BOMBS = {"lines": "x\n" * 2_000_000, "one line": "x;" * 2_000_000, "signs": "[" + "0," * 1_000_000 + "]"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-I", "-m", "scaffold", *arguments],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)),
    )


@pytest.mark.parametrize("kind", BOMBS)
def test_check_reads_it_in_little_memory(reference: Path, tmp_path: Path, kind: str) -> None:
    root = Path(shutil.copytree(reference, tmp_path / "tree", symlinks=True))
    package = next(root.glob("verl_omni/pipelines/*_flow_grpo"))
    (package / "bomb.py").write_text(BOMBS[kind])
    done = run("check", str(package))
    assert done.returncode == 1, done.stderr
    assert f"more than {MOST_PARTS:,} words and signs are too many for one file" in done.stdout + done.stderr


@pytest.mark.upstream
def test_inspect_reads_it_in_little_memory(tmp_path: Path) -> None:
    source = locate("0.27.0rc1")
    module = "vllm_omni/diffusion/models/bagel/pipeline_bagel.py"
    for path in ("vllm_omni/__init__.py", "vllm_omni/diffusion/registry.py", module):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source.read(path) + ("\n" + BOMBS["lines"] if path == module else ""))
    done = run("inspect", "bagel", "--vllm-omni", str(tmp_path))
    assert done.returncode == 2
    assert f"{module}:1 in vllm-omni" in done.stderr
    assert "words and signs are too many" in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_fits_is_parsed() -> None:
    assert len(parse("x\n" * (MOST_PARTS // 2 - 1)).body) == MOST_PARTS // 2 - 1
    with pytest.raises(SyntaxError, match="too many"):
        parse("x\n" * (MOST_PARTS // 2 + 1))


def test_a_memory_limit_is_named() -> None:
    from scaffold.limits import bounded

    code = (
        "import resource, sys; from scaffold.limits import bounded\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({LIMIT}, {LIMIT}))\nprint(bounded.memory())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "the memory limit of 600 MiB\n"
    assert bounded.memory().startswith("the memory")
