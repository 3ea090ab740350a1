"""The child process: imports torch and the package once, then forks each contract.

Started by its path, with the job as JSON on stdin and a pipe's descriptor for results; of the user's files, only what
``imports.prepare`` adds is on ``sys.path``. A contract that ends its process, or fills its memory, ends that one alone.
"""

from __future__ import annotations

import errno
import gc
import importlib
import json
import os
import select
import selectors
import sys
import tempfile
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any

# For the package and its own imports, without torch and vllm-omni; the largest rendered package takes 300.
IMPORT_MEGABYTES = 2048
SIZES_MEGABYTES = 4096
HEARTBEAT = 0.2  # seconds between checks of the deadlines


def main() -> None:
    """Read the job and run it."""
    sys.path[0] = str(Path(__file__).resolve().parents[3])
    from scaffold.verify.child.leftovers import adopt_orphans, die_with_parent

    die_with_parent()
    adopt_orphans()
    run_job(json.loads(sys.stdin.read()), int(sys.argv.pop()))


def _stand_in(job: dict[str, Any], origins: dict[str, str]) -> None:
    """Let the kit also stand in for a pipeline outside vllm-omni."""
    own = str(job["spec"].get("upstream", {}).get("module") or "vllm_omni").partition(".")[0]
    if own != "vllm_omni" and origins["vllm_omni"] == "kit":
        from omni_scaffold_kit.model_finder import install

        install(own)


def run_job(job: dict[str, Any], descriptor: int) -> None:
    """Run the contracts of a job; one JSON line on ``descriptor`` for each event."""
    os.set_inheritable(descriptor, False)
    channel = os.fdopen(descriptor, "w", encoding="utf-8")

    def say(**event: Any) -> None:
        channel.write(f"{json.dumps(event)}\n")
        channel.flush()

    os.environ.update(
        {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "LOCAL_RANK": "0", "TOKENIZERS_PARALLELISM": "0"}
    )
    os.environ.setdefault("OMNI_SCAFFOLD_KIT_PROFILE", job["profile"])
    if job["executed"]:
        os.environ["FLOW_GRPO_UPSTREAM"] = job["executed"]
    # The parent removes this folder, including leftovers of a killed contract.
    os.environ["TMPDIR"] = tempfile.tempdir = job["logs"]
    origins: dict[str, str] = {}
    gc.disable()
    try:
        import torch

        torch.set_num_threads(1)
        from scaffold.verify.child.imports import prepare
        from scaffold.verify.child.leftovers import end_descendants

        origins = prepare(job["root"], job["sources"], job["checkout"], job["kit"], job["diffusers_path"])
        _stand_in(job, origins)
        _import_contracts(job)
        if any("lora" in contract["id"] or "fsdp" in contract["id"] for contract in job["contracts"]):
            import peft  # noqa: F401  # once here instead of in every fork
        from scaffold.verify.child.isolation import limit_host

        limit_host(IMPORT_MEGABYTES)
        importlib.import_module(job["module"])
    except BaseException as error:
        missing = error.name if isinstance(error, ImportError) else None
        say(event="import", error=one_line(error, job["root"]), missing=missing, origins=origins)
        say(event="end")
        return
    say(event="import", error=None, origins=origins, environment=environment())
    # Imported objects are excluded from garbage collection, so that forks share their memory.
    gc.freeze()
    gc.enable()
    _contracts(job, say)
    end_descendants(os.getpid())
    say(event="end")


def _import_contracts(job: dict[str, Any]) -> None:
    """Import the contracts once for all forks."""
    from scaffold.verify.subject import contract_of

    for contract in job["contracts"]:
        contract_of(contract["module"])


def environment() -> dict[str, str]:
    """Return the versions of the imported libraries."""
    from importlib import metadata
    from platform import machine, python_version

    found = {"python": python_version(), "machine": machine()}
    for name in ("torch", "diffusers", "peft", "transformers", "tensordict", "vllm-omni"):
        module = sys.modules.get(name.replace("-", "_"))
        version = getattr(module, "__version__", None)
        if version is None:
            try:
                version = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
        found[name] = str(version)
    return found


def _contracts(job: dict[str, Any], say: Any) -> None:
    from scaffold.verify.child import isolation

    waiting = list(job["contracts"])
    if job.get("ported") is None and any(contract["recorded"] for contract in waiting):
        job["sizes"] = _sizes(job)
    running: dict[int, tuple[dict[str, Any], isolation.Forked]] = {}
    with selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and len(running) < job["processes"]:
                contract = waiting.pop(0)
                process = isolation.fork(
                    partial(_measure, job, contract),
                    contract["seconds"],
                    contract["megabytes"],
                    Path(job["logs"], f"{contract['id']}.log"),
                )
                running[process.reader] = (contract, process)
                selector.register(process.reader, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(HEARTBEAT)}
            for reader, (contract, process) in list(running.items()):
                # The pipe may never close: a process left by the contract can hold it open.
                ended = isolation.has_ended(process)
                if ended or (reader in ready and not isolation.receive(process)):
                    selector.unregister(reader)
                    del running[reader]
                    seconds = time.monotonic() - process.started
                    say(event="result", id=contract["id"], seconds=seconds, **isolation.finish(process))
            for _, process in running.values():
                if not process.timed_out and isolation.is_over(process.started, process.seconds):
                    process.timed_out = True
                    isolation.kill(process)


def _forked(task: Any, seconds: float, megabytes: int, log: Path) -> dict[str, Any]:
    """Wait for the result of one fork."""
    from scaffold.verify.child import isolation

    process = isolation.fork(task, seconds, megabytes, log)
    while not isolation.has_ended(process):
        heard = select.select([process.reader], [], [], HEARTBEAT)[0]
        if process.reader in heard and not isolation.receive(process):
            break
        if isolation.is_over(process.started, process.seconds):
            process.timed_out = True
            isolation.kill(process)
            break
    return isolation.finish(process)


def _sizes(job: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of the tiny model, determined once in a fork, or why there are none."""
    log = Path(job["logs"], "sizes.log")
    found = _forked(partial(_choose, job), job["sizes_seconds"], SIZES_MEGABYTES, log)
    return {"unknown": f"sizes of a tiny model: {found['error']}"} if "error" in found else found


def _choose(job: dict[str, Any]) -> dict[str, Any]:
    from scaffold.verify.measured import NotDrivableError
    from scaffold.verify.subject import subject_of
    from scaffold.verify.subject.blueprint import chosen

    try:
        return {"values": chosen(subject_of(job, importlib.import_module(job["module"])))}
    except NotDrivableError as reason:
        return {"unknown": str(reason)}
    except MemoryError:
        raise
    except BaseException as error:
        return {"unknown": f"sizes of a tiny model: {one_line(error, job['root'])}"}


def _measure(job: dict[str, Any], contract: dict[str, Any]) -> dict[str, Any]:
    """Run one contract, in the forked process."""
    import random

    import torch

    from scaffold.verify.measured import NotDrivableError
    from scaffold.verify.subject import measure

    try:
        package = importlib.import_module(job["module"])
        random.seed(0)
        torch.manual_seed(0)
        measured = measure(contract["module"], job, package)
    except NotDrivableError as reason:
        return {"status": "skip", "reason": str(reason)}
    except MemoryError:
        raise
    except BaseException as error:
        return {"status": "fail", "reason": one_line(error, job["root"])}
    return {
        "status": "pass" if measured.holds else "fail",
        "reason": measured.reason,
        "value": measured.shown,
        "limit": measured.limit,
        "unit": measured.unit,
        "floor": measured.floor,
        "series": None if measured.series is None else {k: list(v) for k, v in measured.series.items()},
    }


def one_line(error: BaseException, root: str) -> str:
    """Type, message and the last place in the package's own tree."""
    from scaffold.verify.child.isolation import MAX_FILE_BYTES

    message = " ".join(str(error).split())[:400]
    if isinstance(error, MemoryError):
        message = message or "more than is allowed"
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        message = f"more than {MAX_FILE_BYTES >> 20} MB are written into a file or printed"
    place = ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(root + os.sep):
            place = f" ({os.path.relpath(frame.filename, root)}:{frame.lineno})"
            break
    return f"{type(error).__name__}: {message}{place}"


if __name__ == "__main__":
    main()
