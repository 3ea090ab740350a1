"""Level ``contract``: starts a host process for each release of diffusers that is needed, and reads its results."""

from __future__ import annotations

import json
import os
import selectors
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.files.reading import open_file
from scaffold.files.resources import install_command, kit_root
from scaffold.limits import child_process
from scaffold.scratch import scratch_folder
from scaffold.target import profile_for_checkout
from scaffold.upstream.cache import cache_root
from scaffold.upstream.fetch import fetch_wheel
from scaffold.verify.catalogue import ContractEntry, catalogue
from scaffold.verify.child.contained import start_contained
from scaffold.verify.child.devices import hidden
from scaffold.verify.child.isolation import is_over, last_words
from scaffold.verify.executed_text import executed_text
from scaffold.verify.package import Package, declared_lists, model_names
from scaffold.verify.request import VerifyRequest
from scaffold.verify.result import CheckResult, Outcome
from scaffold.verify.rollout.engine_side.tiny import constants
from scaffold.verify.rollout.facts import NotEstablishedError, records
from scaffold.verify.rollout.level import environment_of, kept_log, make_plan
from scaffold.verify.rollout.process import run_process
from scaffold.verify.upstream_loop import upstream_loop

if TYPE_CHECKING:
    from scaffold.verify.package import Package
    from scaffold.verify.rollout.level import Plan


# Records rollouts of the real pipeline for level ``contract``, and writes a tiny checkpoint for a ported package.


def recorded(
    package: Package, scratch: Path, dtypes: Sequence[str], checkpoint: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Make the recordings.

    Args:
        package: one with a ported denoiser, or a hand-written one with its table.
        scratch: an empty folder that outlives the contracts.
        dtypes: precisions to run the pipeline in.
        checkpoint: its configuration gives the tiny checkpoint's settings.

    Returns:
        By precision: ``checkpoint`` and ``folder``, where the checkpoint and the recording lie; or ``unknown``, the
        reason why there is none, which also stands under ``failed`` where the pipeline ran and gave none.
    """
    found = environment_of(package)
    try:
        if isinstance(found, str):
            raise NotEstablishedError(f"what its pipeline does only the pipeline knows, and {found}")
        plan = make_plan(package, found, checkpoint, scratch)
    except NotEstablishedError as reason:
        return {dtype: {"unknown": str(reason)} for dtype in dtypes}
    return {dtype: _made(plan, dtype, scratch / dtype) for dtype in dtypes}


def _made(plan: Plan, dtype: str, folder: Path) -> dict[str, Any]:
    """One recording; the files of its process stand beside it."""
    folder.mkdir()
    task = plan.task(dtype, folder / "recording.jsonl", recording=str(folder))
    file = folder / "recording.json"
    task.write(file)
    ending = run_process(plan.environment, file, folder / "recording.log", profile=plan.profile)
    if ending.problem is not None:
        log = kept_log(folder / "recording.log", "recording")
        told = f"the real pipeline could not be recorded: {ending.problem}; all it printed: {log}"
        return {"unknown": told, "failed": told}
    return {"checkpoint": task.checkpoint, "folder": str(folder)}


# Another release of diffusers, unzipped in the cache, for a child process of its own.

DISTRIBUTION = "diffusers"


def installed_diffusers() -> str | None:
    """Version of the installed diffusers, or None."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None


def other_diffusers(version: str) -> Path:
    """Folder that holds ``diffusers/`` of ``version`` and nothing else, fetched and unzipped on first use.

    Raises:
        ScaffoldError: the release cannot be fetched, or the cache cannot be written.
    """
    folder = cache_root() / "unzipped" / f"{DISTRIBUTION}-{version}"
    if folder.is_dir():
        return folder
    wheel = fetch_wheel(DISTRIBUTION, version)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder("unzip", folder.parent) as staging:
            with open_file(wheel) as stream, zipfile.ZipFile(stream) as archive:
                archive.extractall(staging)
            try:
                staging.replace(folder)
            except OSError:  # another process may have been faster; both folders are the same
                if not folder.is_dir():
                    raise
    except (OSError, zipfile.BadZipFile) as error:
        raise ScaffoldError(f"{wheel.name} cannot be unzipped into {folder.parent}: {error}") from None
    return folder


IMPORT, END = "import", "end"
# Libraries the kit replaces, and their distributions.
_ENGINE = {"verl": "verl", "vllm": "vllm", "vllm_omni": "vllm-omni"}
IMPORT_SECONDS = 120.0
SIZES_SECONDS = 90.0  # to find the sizes of a tiny model
HEARTBEAT = 0.5  # seconds between checks that the host is alive
PASSED_ON = frozenset(
    {"CUDA_HOME", "CUDA_VISIBLE_DEVICES", "DYLD_LIBRARY_PATH", "HF_HOME", "HF_HUB_CACHE", "HOME", "LANG", "LC_ALL",
     "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR", "USER", "VIRTUAL_ENV"}
)  # fmt: skip
HOST = Path(__file__).resolve().parent / "child" / "host.py"


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
            hosts.append((group, stack.enter_context(_host({**job, "diffusers_path": path}, group))))
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


@contextmanager
def _host(job: dict[str, Any], entries: Sequence[ContractEntry]) -> Iterator[Iterator[dict[str, Any]]]:
    """Start a host and yield its events; an import that hangs and a host that dies are events, too."""
    with scratch_folder("verify") as folder:
        contracts = [asdict(entry) for entry in entries]
        log = folder / "host.log"
        process = start_host({**job, "logs": str(folder), "contracts": contracts}, log)
        try:
            yield _events(process, log, sum(entry.seconds for entry in entries))
        finally:
            os.close(process.reader)
            process.end()


def _events(process: HostProcess, log: Path, seconds: float) -> Iterator[dict[str, Any]]:
    """What a host says, its contracts being allowed ``seconds`` together; the clock starts with the first reading."""
    seen, started = False, time.monotonic()
    for event in _said(process, IMPORT_SECONDS, IMPORT_SECONDS + SIZES_SECONDS + seconds):
        if event["event"] == END:
            break
        seen = True
        yield event
    if not seen:
        late = process.alive() and is_over(started, IMPORT_SECONDS)
        ended = f"it did not end within {IMPORT_SECONDS:g} s" if late else "the process ended"
        yield {"event": IMPORT, "error": f"{ended}{last_words(log)}", "origins": {}}


@dataclass(frozen=True)
class HostProcess:
    """A running host: the pipe of its events, a function that ends it, and whether it is alive."""

    reader: int
    end: Callable[[], None]
    alive: Callable[[], bool] = lambda: True


def start_host(job: dict[str, Any], log: Path) -> HostProcess:
    """Start ``child/host.py`` in a session of its own, its output going to ``log``."""
    reader, writer = os.pipe()
    with log.open("wb") as output:
        process = start_contained(
            [sys.executable, str(HOST), str(writer)],
            cwd=log.parent,
            variables=environment_for_package(),
            stdin=child_process.PIPE,
            stdout=output,
            stderr=child_process.SAME_AS_OUTPUT,
            inherited=(writer,),
        )
    os.close(writer)
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(job).encode())
        process.stdin.close()
    return HostProcess(reader, process.end, lambda: process.poll() is None)


def environment_for_package() -> dict[str, str]:
    """Return the part of the user's environment for the package's processes, without tokens and secrets."""
    given = child_process.environment()
    kept = {name: value for name, value in given.items() if name in PASSED_ON or name.startswith("OMNI_SCAFFOLD_")}
    changes = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return hidden({**kept, **changes})


def _said(process: HostProcess, first_in: float, all_in: float) -> Iterator[dict[str, Any]]:
    """Yield a host's events until its end: the first within ``first_in`` seconds, the last within ``all_in``.

    The pipe may never close: a process started by the package can hold it open.
    """
    pending, started, seconds = b"", time.monotonic(), first_in
    with selectors.DefaultSelector() as selector:
        selector.register(process.reader, selectors.EVENT_READ)
        while not is_over(started, seconds):
            alive = process.alive()
            if not selector.select(HEARTBEAT):
                if not alive:
                    return
                continue
            chunk = os.read(process.reader, 1 << 16)
            if not chunk:
                return
            pending += chunk
            *lines, pending = pending.split(b"\n")
            seconds = all_in
            yield from (json.loads(line) for line in lines)
