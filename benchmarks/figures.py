"""Measure every proven pipeline as `new` renders it, and keep the figures that docs/models.md shows.

    python benchmarks/figures.py                                        # every pipeline of 0.30.0, minutes each
    python benchmarks/figures.py OmniGen2Pipeline                       # one
    python benchmarks/figures.py "OmniGen2Pipeline edit"                # with --task edit, as proven.toml calls it
    python benchmarks/figures.py OmniGen2Pipeline --report train.json   # what `verify … --format json` printed
    python benchmarks/figures.py --lines                                # lines of Python alone, seconds each

Without ``--report`` a package is rendered and `omni-scaffold verify PACKAGE --level rollout --format json` runs, in the
environment that `omni-scaffold env rollout` builds. Figures go to ``scaffold/presets/proofs/figures.toml``; those that
a report does not have stay. A report in which a check failed is not recorded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli
import tomli_w

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scaffold.grade.proof import Figures, figures_of, name_of, proofs

FILE = Path(__file__).resolve().parents[1] / "scaffold/presets/proofs/figures.toml"
HEAD = """\
# What was measured of the packages of proven.toml; docs/models.md shows it. benchmarks/figures.py writes this file from
# reports of `verify … --format json`. Two digits of a difference in training are those of docs/train.md, whose runs
# left no report here.
"""


def measured(proven: str, version: str) -> dict[str, Any]:
    """Render a package and return the report of a run of both levels."""
    name, (pipeline, _, task) = name_of(proven), proven.partition(" ")
    with tempfile.TemporaryDirectory() as folder:
        scaffold = [sys.executable, "-m", "scaffold"]
        new = ["new", name, "--pipeline", pipeline, "--vllm-omni", version, "--patch", "--out", folder]
        new += ["--task", task] if task else []
        subprocess.run([*scaffold, *new], check=True, stdout=subprocess.DEVNULL)
        package = f"{folder}/verl_omni/pipelines/{name}_flow_grpo"
        verify = ["verify", package, "--level", "rollout", "--format", "json"]
        return dict(json.loads(subprocess.run([*scaffold, *verify], stdout=subprocess.PIPE, text=True).stdout))


def lines_of(proven: str, version: str) -> int:
    """Lines of Python of a package, as a project has it."""
    pipeline, _, task = proven.partition(" ")
    with tempfile.TemporaryDirectory() as folder:
        new = ["new", name_of(proven), "--pipeline", pipeline, "--vllm-omni", version, "--out", f"{folder}/out"]
        new += ["--task", task] if task else []
        subprocess.run([sys.executable, "-m", "scaffold", *new], check=True, stdout=subprocess.DEVNULL)
        files = Path(folder, "out/src").glob("*/*.py")
        return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def record(pipeline: str, version: str, report: dict[str, Any], file: Path) -> None:
    """Put the figures of a report into the file.

    Raises:
        SystemExit: the report is of another package or version, or a check failed.
    """
    failed = [check["id"] for check in report["checks"] if check["status"] == "fail"]
    said = str(report["environment"].get("vllm-omni", ""))
    package = f"{name_of(pipeline)}_flow_grpo"
    if failed or report["package"] != package or version not in said:
        raise SystemExit(f"not recorded: {report['package']} with vllm-omni {said}; failed: {', '.join(failed) or '-'}")
    keep(pipeline, version, figures_of(report["checks"]), file)


def keep(pipeline: str, version: str, figures: Figures, file: Path) -> None:
    """Put figures into the file; those that are not measured stay."""
    table = tomli.loads(file.read_text(encoding="utf-8"))
    found = {key: value for key, value in asdict(figures).items() if value is not None}
    table.setdefault(version, {}).setdefault(pipeline, {}).update(found)
    ordered = {at: dict(sorted(table[at].items())) for at in sorted(table)}
    file.write_text(f"{HEAD}\n{tomli_w.dumps(ordered)}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipelines", nargs="*", metavar="PIPELINE", help="as in proven.toml; by default all")
    parser.add_argument("--vllm-omni", default="0.30.0", metavar="VERSION")
    parser.add_argument("--file", type=Path, default=FILE, help="where figures go")
    parser.add_argument("--report", type=Path, metavar="FILE", help="of one pipeline, in place of a run")
    parser.add_argument("--lines", action="store_true", help="count lines of Python, and run nothing")
    asked = parser.parse_args()
    if asked.report is not None and len(asked.pipelines) != 1:
        parser.error("--report is of one pipeline")
    for pipeline in asked.pipelines or proofs()[asked.vllm_omni]:
        if asked.lines:
            keep(pipeline, asked.vllm_omni, Figures(lines=lines_of(pipeline, asked.vllm_omni)), asked.file)
            continue
        report = json.loads(asked.report.read_text()) if asked.report else measured(pipeline, asked.vllm_omni)
        record(pipeline, asked.vllm_omni, report, asked.file)
        print(f"{pipeline}: {figures_of(report['checks'])}")


if __name__ == "__main__":
    main()
