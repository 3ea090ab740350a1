"""Starts the child process in which a package loads the headers of a checkpoint. Executes nothing of the package."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scaffold.checkpoint import CheckpointHeaders, read_checkpoint
from scaffold.checkpoint.folder import opened_folder
from scaffold.errors import ScaffoldError
from scaffold.files.documents import parse_json
from scaffold.files.reading import below, expanded, read_bytes
from scaffold.files.resources import kit_root
from scaffold.limits import child_process
from scaffold.scratch import scratch_folder
from scaffold.terminal.progress import step
from scaffold.verify.child.contained import run_contained
from scaffold.verify.executed_text import executed_text
from scaffold.verify.host_process import environment_for_package
from scaffold.verify.loading.proof import LoadingProof, prove
from scaffold.verify.package import Package, declared_lists, open_package

CHILD = Path(__file__).resolve().parents[1] / "child" / "loading.py"
NEEDED = ("torch", "safetensors")
OUTCOME = "outcome.json"
SECONDS = 900.0  # imports on a crowded machine; the largest checkpoint takes 20 s of them
MOST_BYTES = 512 << 20
_PART = re.compile(r"(.+)-\d{4,5}-of-\d{4,5}\.safetensors")


def missing_libraries() -> tuple[str, ...]:
    """What loading needs and this Python lacks."""
    return tuple(name for name in NEEDED if find_spec(name) is None)


def load_headers(package: str | Path, checkpoint: str | Path) -> LoadingProof:
    """Let a package load a checkpoint of which only the headers are read.

    Args:
        package: its folder.
        checkpoint: folder, weight file or Hub repository.

    Raises:
        ScaffoldError: no such package or checkpoint, a checkpoint that is damaged, no torch, or nothing that could be
            said; the reason is the line.
    """
    opened = open_package(package)
    lacking = missing_libraries()
    if lacking:
        raise ScaffoldError(
            f"{sys.executable} has no {', '.join(lacking)}, which loading a checkpoint needs",
            hint="pip install '.[verify]' in the clone",
        )
    headers = read_checkpoint(checkpoint)
    with scratch_folder("loading") as folder, step("loading the headers"):
        location = expanded(checkpoint)
        if not location.exists():
            location = folder / "checkpoint"
            write_headers(headers, location)
        elif location.is_dir():
            location = opened_folder(location)
        elif not opened.spec.get("port", {}).get("file"):
            location = location.parent
        outcome = _run(opened, location.absolute(), folder)
        if not expanded(checkpoint).exists() and "error" in outcome and not outcome["read"]:
            raise ScaffoldError(
                f"{opened.name}: nothing is known of {headers.source}: its loader asks for more than headers and"
                f" configuration, and ends with {outcome['error'].replace(f'{location}/', '')}",
                hint="download the repository and name its folder",
            )
    return prove(opened, headers, outcome, location.absolute())


def run_child(command: Sequence[str], variables: Mapping[str, str]) -> child_process.Ended[str]:
    """Run the child process to its end."""
    return run_contained(command, seconds=SECONDS, variables=variables)


def _run(package: Package, location: Path, folder: Path) -> dict[str, Any]:
    # The top of a pipeline's own package, for which the kit stands in, as for vllm-omni's.
    beside = str(package.spec.get("upstream", {}).get("module") or "vllm_omni").partition(".")[0]
    job = {
        "module": package.module,
        "root": str(package.root),
        "sources": [str(folder) for folder in package.sources],
        "checkout": package.checkout,
        "kit": str(kit_root()),
        "beside": beside if beside != "vllm_omni" else None,
        "executed": executed_text(package, folder / "executed"),
        "profile": package.spec.get("target", {}).get("profile") or "main",
        "location": str(location),
        "targets": declared_lists(package).get("target_modules", "all-linear"),
        "logs": str(folder),
        "outcome": str(folder / OUTCOME),
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    try:
        done = run_child([sys.executable, str(CHILD), str(folder / "job.json")], environment_for_package())
    except child_process.TookTooLong:
        raise ScaffoldError(f"{package.name}: loading did not end within {SECONDS:g} s") from None
    try:
        outcome = parse_json(read_bytes(folder / OUTCOME, MOST_BYTES))
    except (OSError, ValueError):
        printed = (done.stdout + done.stderr).strip().splitlines() or [child_process.told_ending(done.returncode)]
        told = printed[-1][:300]
        raise ScaffoldError(f"{package.name}: the process that loads it ended with no result: {told}") from None
    if not isinstance(outcome, dict):
        raise ScaffoldError(f"{package.name}: the process that loads it gave no result")
    return outcome


def write_headers(headers: CheckpointHeaders, folder: Path) -> None:
    """Write a checkpoint that takes no space: its configuration, its headers, and files of the full size with holes."""
    for name, values in headers.configs.items():
        place = below(folder, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(values), encoding="utf-8")
    indexes: dict[str, dict[str, str]] = {}
    for file in headers.files:
        table: dict[str, Any] = {}
        end = 0
        for entry in headers.entries:
            if entry.file == file.name:
                start, end = end, end + entry.nbytes
                table[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [start, end]}
        raw = json.dumps(table).encode()
        place = below(folder, file.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as stream:
            stream.write(len(raw).to_bytes(8, "little") + raw)
            stream.truncate(8 + len(raw) + end)
        part = _PART.fullmatch(file.name)
        if part is not None:
            indexes.setdefault(f"{part[1]}.safetensors.index.json", {}).update(dict.fromkeys(table, place.name))
    for name, weight_map in indexes.items():
        text = json.dumps({"metadata": {}, "weight_map": weight_map})
        below(folder, name).write_text(text, encoding="utf-8")
