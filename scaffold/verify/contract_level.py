"""Level ``contract``: starts a host process for each release of diffusers that is needed, and reads its results."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.files.resources import install_command, kit_root
from scaffold.scratch import scratch_folder
from scaffold.target import profile_for_checkout
from scaffold.upstream.fetch import installed_diffusers, other_diffusers
from scaffold.verify.catalogue import ContractEntry, catalogue
from scaffold.verify.executed_text import executed_text
from scaffold.verify.host_process import IMPORT, host_events
from scaffold.verify.package import Package, declared_lists, model_names
from scaffold.verify.recordings import recorded
from scaffold.verify.request import VerifyRequest
from scaffold.verify.result import CheckResult, Outcome
from scaffold.verify.rollout.engine_side.tiny import constants
from scaffold.verify.rollout.facts import records
from scaffold.verify.upstream_loop import upstream_loop

# Libraries the kit replaces, and their distributions.
_ENGINE = {"verl": "verl", "vllm": "vllm", "vllm_omni": "vllm-omni"}
SIZES_SECONDS = 90.0  # to find the sizes of a tiny model


def run_contract_level(
    package: Package, request: VerifyRequest, tell: Callable[[str], None] = lambda _: None
) -> Outcome:
    """Run the selected contracts; each gets a result even if its process dies, and ``tell`` gets a line for each."""
    entries = [entry for entry in catalogue() if not request.select or entry.id in request.select]
    outcome = Outcome()
    if not entries:
        return outcome
    _require_torch()
    job = {
        "module": package.module,
        "root": str(package.root),
        "sources": [str(folder) for folder in package.sources],
        "checkout": package.checkout,
        "folder": str(package.folder),
        "kit": str(kit_root()),
        "profile": package.spec.get("target", {}).get("profile") or _profile(package),
        "spec": _plain(package.spec),
        "table": asdict(package.declared),
        "declared": declared_lists(package),
        "models": model_names(package),
        "upstream": upstream_loop(package),
        "checkpoint": str(request.checkpoint) if request.checkpoint and "port" not in package.spec else None,
        "sizes_seconds": SIZES_SECONDS,
        "processes": max(1, min(4, os.cpu_count() or 1)),
    }
    installed = installed_diffusers()
    results: dict[str, CheckResult] = {}
    groups: dict[str | None, list[ContractEntry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.diffusers not in (None, installed)):
        groups.setdefault(None if entry.diffusers == installed else entry.diffusers, []).append(entry)
    with ExitStack() as stack:
        job["ported"], job["half"] = _recorded(package, stack, entries, request.checkpoint)
        job["executed"] = executed_text(package, stack.enter_context(scratch_folder("executed")))
        job["rolled"] = _rolled(package, stack, entries, request.checkpoint)
        hosts = []  # all are started before the first is read, since imports take most of a host's time
        for release, group in groups.items():
            path = None
            if release is not None:
                try:
                    path = str(other_diffusers(release))
                except ScaffoldError as error:
                    results |= {entry.id: _result(entry, "skip", error.line) for entry in group}
                    continue
            own = {**job, "diffusers_path": path, "contracts": [asdict(entry) for entry in group]}
            seconds = SIZES_SECONDS + sum(entry.seconds for entry in group)
            hosts.append((group, stack.enter_context(host_events(own, seconds))))
        for group, events in hosts:
            known = {entry.id: entry for entry in group}
            for event in events:
                if event["event"] == IMPORT:
                    _imported(event, group, results, outcome)
                elif event["id"] in known:
                    results[event["id"]] = _from_event(known[event["id"]], event)
                    tell(results[event["id"]].line)
            for entry in group:
                results.setdefault(entry.id, _result(entry, "fail", "the host process ended before this contract"))
        every = [job[name] or {} for name in ("ported", "half", "rolled")]
        for made in every:
            if "checkpoint" in made:
                outcome.environment |= constants.told(Path(made["checkpoint"]))
    failed = next((made["failed"] for made in every if "failed" in made), None)
    if failed is not None:
        _recording_failed(entries, results, failed)
    outcome.checks = [results[entry.id] for entry in entries]
    return outcome


def _require_torch() -> None:
    """Raise unless what runs a package is installed.

    Raises:
        ScaffoldError: a library is missing.
    """
    missing = [name for name in ("torch", "diffusers", "peft", "tensordict") if find_spec(name) is None]
    if missing:
        raise ScaffoldError(
            f"{sys.executable} has no {', '.join(missing)}, which running a package needs",
            hint=install_command("verify"),
        )


def _recording_failed(entries: Sequence[ContractEntry], results: dict[str, CheckResult], reason: str) -> None:
    """Report a pipeline that did not run as one failure, that of ``forward`` if selected."""
    skipped = [entry for entry in entries if entry.recorded and results[entry.id].status == "skip"]
    told = ("forward", "rollout-log-probs")
    shown = next((entry for name in told for entry in skipped if entry.id == name), next(iter(skipped), None))
    if shown is not None:
        results[shown.id] = _result(shown, "fail", reason)


def _recorded(
    package: Package, stack: ExitStack, entries: Sequence[ContractEntry], checkpoint: Path | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Where a ported package's tiny checkpoint and rollouts lie, in float32 and in half precision.

    None for a package that makes its inputs itself.
    """
    if not records(package):
        return None, None
    needed = {
        "float32": any(entry.recorded and not entry.half for entry in entries),
        "bfloat16": any(entry.half for entry in entries),
    }
    nothing: dict[str, Any] = {"unknown": "no selected contract needs the real pipeline"}
    found: dict[str, dict[str, Any]] = dict.fromkeys(needed, nothing)
    if any(needed.values()):
        folder = stack.enter_context(scratch_folder("recording"))
        found |= recorded(package, folder, [dtype for dtype in needed if needed[dtype]], checkpoint)
    return found["float32"], found["bfloat16"]


def _rolled(
    package: Package, stack: ExitStack, entries: Sequence[ContractEntry], checkpoint: Path | None
) -> dict[str, Any] | None:
    """Where the rollouts of a hand-written package's real pipeline lie, or why there are none.

    None for a package without its table, and where no selected contract is about its rollout.
    """
    if not package.declared.place or not any(entry.rolled for entry in entries):
        return None
    folder = stack.enter_context(scratch_folder("recording"))
    return recorded(package, folder, ["float32"], checkpoint)["float32"]


def _profile(package: Package) -> str:
    """Return the release of verl-omni the kit imitates if the package names none."""
    if package.checkout:
        with suppress(ScaffoldError):
            return profile_for_checkout(package.root).name
    return "main"


def _plain(value: Any) -> Any:
    """Sections of the spec as JSON can say them."""
    return json.loads(json.dumps(value, default=str))


def _imported(
    event: dict[str, Any], group: Sequence[ContractEntry], results: dict[str, CheckResult], outcome: Outcome
) -> None:
    origins = event.get("origins") or {}
    if origins.get("verl_omni") == "real":
        outcome.contract = "verl_omni"
    if not outcome.environment:
        outcome.environment = {**event.get("environment", {}), **{f"{k} is": v for k, v in origins.items()}}
    if event["error"] is None:
        return
    line = f"the package cannot be imported: {event['error']}"
    library = str(event.get("missing") or "").partition(".")[0]
    # Not the package's fault: the kit supports a training module, not the whole engine.
    lacking = library in _ENGINE and origins.get(library) != "real"
    if lacking:
        line = f"the package needs {event['missing']}, which the contract kit does not have; install {_ENGINE[library]}"
    results |= {entry.id: _result(entry, "skip", line) for entry in group}
    if not lacking and not any(check.status == "fail" for check in results.values()):
        # Every selection must show one failure: that of registration if selected.
        shown = next((entry for entry in group if entry.id == "registration"), group[0])
        results[shown.id] = _result(shown, "fail", line)


def _result(entry: ContractEntry, status: Any, reason: str) -> CheckResult:
    return CheckResult(
        *(entry.id, "contract", entry.title, status, None, None, None, reason),
        pitfalls=entry.pitfalls,
        reads=not entry.recorded,
    )


def _from_event(entry: ContractEntry, event: dict[str, Any]) -> CheckResult:
    if "error" in event:
        return _result(entry, "fail", str(event["error"]))
    return CheckResult(
        entry.id,
        "contract",
        entry.title,
        event["status"],
        event.get("value"),
        event.get("limit"),
        event.get("unit"),
        " ".join(str(event["reason"]).split())[:1000],
        event.get("floor"),
        event.get("series"),
        float(event.get("seconds", 0.0)),
        entry.pitfalls,
        not entry.recorded,
    )
