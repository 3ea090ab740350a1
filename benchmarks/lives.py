"""Whether a training of each complete package lives to its end, and what its result is good for, on a CPU.

    python benchmarks/lives.py --verl-omni CHECKOUT                           # every package that was not run yet
    python benchmarks/lives.py --verl-omni CHECKOUT "OmniGen2Pipeline 0.30.0" # one
    python benchmarks/lives.py --draw                                         # the table alone

Each is rendered and goes through level train: three steps of verl-omni's own trainer, a save, a step more by a new
process, and the export, which the engine loads and a step is trained from. ``docs/lives.json`` gets what checks said
as its package ends, ``docs/train.md`` the table, and ``figures.toml`` the difference of log-probs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from figures import FILE, keep, name_of

from scaffold.grade.proof import Figures, proofs

DOCS = Path(__file__).resolve().parents[1] / "docs"
BEGIN, END = "<!-- benchmarks/lives.py -->\n", "<!-- end -->"
VERSIONS = ("0.27.0rc1", "0.30.0")  # that verl-omni's main pins, and that most packages were made for
STEPS = 3
# Checks of level train that a column rests on; a package that trains in full has them under another name.
COLUMNS = {
    "three steps": ("end", "push", "worker-errors"),
    "log-probs apart": ("log-prob",),
    "saved, and a step by a new process": ("log-prob-after", "data-after"),
    "exported, loaded into the engine, a step from there": ("export",),
}
Lives = dict[str, dict[str, Any]]


def packages() -> dict[str, tuple[str, str]]:
    """Every complete package: its pipeline, as proven.toml says it, and its vllm-omni, by both."""
    found = [(pipeline, version) for version in VERSIONS for pipeline in proofs()[version]]
    return {" ".join(pair): pair for pair in found}


def main() -> int:
    """Run, write."""
    parser = argparse.ArgumentParser(description="level train of every complete package")
    parser.add_argument("--verl-omni", type=Path, metavar="CHECKOUT")
    parser.add_argument("--draw", action="store_true", help="write the table of docs/lives.json again, run nothing")
    parser.add_argument(
        "packages", nargs="*", metavar="PACKAGE", help="pipeline and version; all that were not run yet"
    )
    given = parser.parse_args()
    data, known = DOCS / "lives.json", packages()
    unknown = sorted(set(given.packages) - set(known))
    if unknown or not (given.draw or given.verl_omni):
        parser.error(f"there is no complete package {unknown[0]!r}" if unknown else "give --verl-omni CHECKOUT")
    lives: Lives = json.loads(data.read_text(encoding="utf-8")) if data.is_file() else {}
    for name in () if given.draw else given.packages or [name for name in known if name not in lives]:
        print(name, flush=True)
        lives[name] = {"day": time.strftime("%Y-%m-%d"), **life(*known[name], given.verl_omni)}
        data.write_text(json.dumps(dict(sorted(lives.items())), indent=1) + "\n", encoding="utf-8")
    write(lives)
    for name, found in lives.items():
        check = found["checks"].get("train-log-prob", {})
        if name in known and check.get("status") == "pass":
            keep(*known[name], Figures(train_log_prob=check["value"], train_steps=STEPS), FILE)
    return 0


def life(pipeline: str, version: str, checkout: Path) -> dict[str, Any]:
    """Render a package, run level train, and return what its checks said."""
    name, (key, _, task) = name_of(pipeline), pipeline.partition(" ")
    with tempfile.TemporaryDirectory() as folder:
        scaffold = [sys.executable, "-m", "scaffold"]
        new = ["new", name, "--pipeline", key, "--vllm-omni", version, "--patch", "--out", folder]
        subprocess.run([*scaffold, *new, *(["--task", task] if task else [])], check=True, stdout=subprocess.DEVNULL)
        verify = ["verify", f"{folder}/verl_omni/pipelines/{name}_flow_grpo", "--level", "train", "--format", "json"]
        verify += ["--steps", str(STEPS), "--verl-omni", str(checkout)]
        started = time.monotonic()
        done = subprocess.run([*scaffold, *verify], stdout=subprocess.PIPE, text=True)
        report = json.loads(done.stdout) if done.stdout else {"checks": []}
        kept = {c["id"]: {key: c[key] for key in ("status", "value", "reason")} for c in report["checks"]}
        return {"seconds": round(time.monotonic() - started), "checks": kept}


def write(lives: Lives) -> None:
    """Put the table into the page, between its marks."""
    page = DOCS / "train.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n" + "\n".join(table(lives)) + f"\n\n{END}{after}", encoding="utf-8")


def table(lives: Lives) -> Iterator[str]:
    """The rows of every complete package, those that were not run included."""
    yield f"| package | {' | '.join(COLUMNS)} | seconds |"
    yield f"|{'---|' * (len(COLUMNS) + 2)}"
    for name in sorted(packages()):
        found = lives.get(name)
        cells = [cell(found["checks"], ids) if found else "not run" for ids in COLUMNS.values()]
        yield f"| {name} | {' | '.join(cells)} | {found['seconds'] if found else ''} |"


def cell(checks: dict[str, dict[str, Any]], ids: tuple[str, ...]) -> str:
    """What the checks of a column say: the worst of them, and the largest value."""
    wanted = {f"{kind}{name}" for name in ids for kind in ("train-", "train-full-")}
    found = [check for name, check in checks.items() if name in wanted]
    if len(found) != len(ids):
        return "not measured"
    for check in found:
        if check["status"] != "pass":
            return f"{check['status']}: {check['reason']}".replace("|", "/")
    largest = max(check["value"] or 0.0 for check in found)
    return f"passes, {largest:.1e}" if largest else "passes"


if __name__ == "__main__":
    raise SystemExit(main())
