"""Starts the child process that exports what a package has trained. Executes nothing of the package."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.files.documents import parse_json
from scaffold.files.reading import expanded, read_bytes
from scaffold.files.resources import RUNTIME, install_command, kit_root
from scaffold.limits import child_process
from scaffold.scratch import scratch_folder
from scaffold.terminal.progress import step
from scaffold.verify.child.contained import run_contained
from scaffold.verify.executed_text import executed_text
from scaffold.verify.host_process import environment_for_package
from scaffold.verify.package import Package, open_package

CHILD = Path(__file__).resolve().parent / "child" / "export.py"
NEEDED = ("torch", "safetensors", "peft")
SECONDS = 6 * 3600.0  # a release of hundreds of gigabytes from and to a slow disk
MOST_BYTES = 64 << 20


def can_export() -> bool:
    """Whether this Python has what an export needs."""
    return all(find_spec(name) is not None for name in NEEDED)


def export(
    package: str | Path, source: Path, base: Path, out: Path, *, adapter: bool = False, python: str | None = None
) -> dict[str, Any]:
    """Write what training made of a release, in the release's own layout.

    Args:
        package: its folder.
        source: checkpoint of the trainer.
        base: the release that was trained, a folder or its one file.
        out: a folder that is not there yet.
        adapter: whether the LoRA adapter alone is written, in PEFT's format.
        python: that has torch; this one by default.

    Returns:
        ``told``, what was written and how far each tensor was moved, and ``lines`` for a person.

    Raises:
        ScaffoldError: it cannot be done; the message says why.
    """
    opened = open_package(package)
    lacking = [name for name in NEEDED if find_spec(name) is None]
    if lacking and python is None:
        raise ScaffoldError(
            f"{sys.executable} has no {', '.join(lacking)}, which an export needs", hint=install_command("verify")
        )
    with scratch_folder("export") as folder, step("exporting"):
        job = _job(opened, source, base, out, adapter, folder)
        outcome = _run(opened, job, folder, python or sys.executable)
    if "error" in outcome:
        raise ScaffoldError(f"{opened.name}: {outcome['error']}")
    return outcome


def _job(package: Package, source: Path, base: Path, out: Path, adapter: bool, folder: Path) -> dict[str, Any]:
    beside = str(package.spec.get("upstream", {}).get("module") or "vllm_omni").partition(".")[0]
    prefix = package.module.rpartition(".")[0]
    shared = (package.folder.with_name(RUNTIME) / "__init__.py").is_file()
    return {
        "module": package.module,
        "root": str(package.root),
        "sources": [str(place) for place in package.sources],
        "checkout": package.checkout,
        "kit": str(kit_root()),
        "beside": beside if beside != "vllm_omni" else None,
        "profile": package.spec.get("target", {}).get("profile") or "main",
        "executed": executed_text(package, folder / "executed"),
        "export": f"{prefix}.{RUNTIME}.export" if prefix and shared else f"{RUNTIME}.export",
        "source": str(expanded(source).absolute()),
        "base": str(expanded(base).absolute()),
        "out": str(expanded(out).absolute()),
        "adapter": adapter,
        "logs": str(folder),
        "outcome": str(folder / "outcome.json"),
    }


def _run(package: Package, job: dict[str, Any], folder: Path, python: str) -> dict[str, Any]:
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    command = [python, str(CHILD), str(folder / "job.json")]
    try:
        done = run_contained(command, seconds=SECONDS, variables=environment_for_package())
    except child_process.TookTooLong:
        raise ScaffoldError(f"{package.name}: the export did not end within {SECONDS / 3600:g} hours") from None
    try:
        outcome = parse_json(read_bytes(folder / "outcome.json", MOST_BYTES))
    except (OSError, ValueError):
        printed = (done.stdout + done.stderr).strip().splitlines() or [child_process.told_ending(done.returncode)]
        raise ScaffoldError(f"{package.name}: the export ended with no result: {printed[-1][:300]}") from None
    if not isinstance(outcome, dict):
        raise ScaffoldError(f"{package.name}: the export gave no result")
    return outcome
