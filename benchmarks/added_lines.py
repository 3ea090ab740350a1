"""Count the lines of Python that a package adds, by the road on which it is written: the table in README.md.

    python benchmarks/added_lines.py [BagelPipeline:0.27.0rc1 OmniGen2Pipeline:0.30.0]

Every line of every ``.py`` file counts, tests and scripts included; the edits of a checkout's own files do not.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

RUNTIME = "flow_grpo_runtime"
ROADS = {
    "project": (),
    "checkout, `--runtime installed`": ("--patch", "--runtime", "installed"),
    "checkout, runtime beside it": ("--patch",),
}


def lines_of(files: list[Path]) -> int:
    """Number of lines of some files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def row(pipeline: str, version: str) -> list[str]:
    """Cells of one pipeline: what it adds on each road."""
    cells = [f"`{pipeline}` of {version}"]
    for road, options in ROADS.items():
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "out")
            command = ["new", pipeline, "--packaged", "--vllm-omni", version, *options, "--out", str(out), "--quiet"]
            subprocess.run([sys.executable, "-m", "scaffold", *command], check=True, stdout=subprocess.DEVNULL)
            files = sorted(out.rglob("*.py"))
            runtime = [path for path in files if RUNTIME in path.parts]
            package = [path for path in files if path.parent.name.endswith("_flow_grpo")]
            told = f"{lines_of(files):,}"
            if road == "project":
                told += f", of which {lines_of(package):,} the package"
            if runtime:
                told += f", of which {lines_of(runtime):,} in {len(runtime)} files the runtime"
            cells.append(told)
    return cells


def main() -> None:
    given = sys.argv[1:] or ["BagelPipeline:0.27.0rc1", "OmniGen2Pipeline:0.30.0"]
    print(f"| added lines of Python | {' | '.join(ROADS)} |")
    print("|---" * (len(ROADS) + 1) + "|")
    for entry in given:
        pipeline, _, version = entry.partition(":")
        print(f"| {' | '.join(row(pipeline, version))} |")


if __name__ == "__main__":
    main()
