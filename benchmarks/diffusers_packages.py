"""Render every pipeline that diffusers loads, run levels contract and rollout, and say what failed first, and where.

    python benchmarks/diffusers_packages.py                              # every one of 0.30.0, minutes each
    python benchmarks/diffusers_packages.py FluxPipeline --keep DIR      # one; package and report stay in DIR
    python benchmarks/diffusers_packages.py --select rollout-sde-log-prob

A row for each: how many checks passed, failed and were skipped, and the first that failed with its reason. A
pipeline that is refused, or of which something is left to write, has that for a reason. benchmarks/lives.py trains.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scaffold.errors import ScaffoldError
from scaffold.grade.proof import name_of
from scaffold.inspect import inspect_pipeline
from scaffold.inspect.table import registered_classes
from scaffold.upstream import locate
from scaffold.verify.rollout.forking import forking
from scaffold.verify.run import verify

SCAFFOLD = [sys.executable, "-m", "scaffold"]
TOLD = 400  # characters of a reason


def loaded_by_diffusers(version: str) -> Iterator[str]:
    """Registry keys of the pipelines that need no port."""
    source = locate(version)
    for key in registered_classes(source):
        if inspect_pipeline(source, key).verdict["path"] == "diffusers":
            yield key


def row(pipeline: str, version: str, folder: Path, select: list[str]) -> str:
    """One line of the table; the package and its report stay in the folder.

    Args:
        pipeline: registry key, and task.
        version: of vllm-omni.
        folder: where the package is written.
        select: checks to run, all if empty.
    """
    name, (key, _, task) = name_of(pipeline), pipeline.partition(" ")
    new = ["new", name, "--pipeline", key, "--vllm-omni", version, "--patch", "--out", str(folder), "--force"]
    new += ["--task", task] if task else []
    rendered = subprocess.run([*SCAFFOLD, *new], capture_output=True, text=True)
    if rendered.returncode:
        return _line(pipeline, "refused" if rendered.returncode == 3 else "not rendered", rendered.stderr)
    started = time.monotonic()
    try:
        report = verify(folder / f"verl_omni/pipelines/{name}_flow_grpo", level="rollout", select=select)
    except ScaffoldError as error:
        return _line(pipeline, "did not run", error.message)
    (folder / f"{name}.json").write_text(json.dumps(report.to_json(), indent=1), encoding="utf-8")
    counted = Counter(check.status for check in report.checks)
    failed = [check for check in report.checks if check.status == "fail"]
    told = f"{counted['pass']} / {counted['fail']} / {counted['skip']} in {time.monotonic() - started:.0f} s"
    return _line(pipeline, told, f"{failed[0].id}: {failed[0].reason}" if failed else "")


def _line(pipeline: str, found: str, reason: str) -> str:
    told = " ".join(reason.split()).replace("|", "\\|")
    return f"| `{pipeline}` | {found} | {told[:TOLD]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipelines", nargs="*", metavar="PIPELINE", help="registry key, and task; by default all")
    parser.add_argument("--vllm-omni", default="0.30.0", metavar="VERSION")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where packages and reports stay")
    parser.add_argument("--select", action="append", default=[], metavar="ID", help="run this check only")
    asked = parser.parse_args()
    print("| pipeline | pass / fail / skip | first failure |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as scratch, forking():
        folder = (asked.keep or Path(scratch)).resolve()
        for pipeline in asked.pipelines or loaded_by_diffusers(asked.vllm_omni):
            print(row(pipeline, asked.vllm_omni, folder, asked.select), flush=True)


if __name__ == "__main__":
    main()
