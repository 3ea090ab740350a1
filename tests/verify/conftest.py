"""Copies of the reference package, and a host that has torch loaded already."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from scaffold.verify import contract_level
from scaffold.verify.result import CheckResult, VerifyReport
from scaffold.verify.run import verify

REPOSITORY = Path(__file__).resolve().parents[2]

# One process imports torch; each job runs in a fork of it, by the code of the real host.
WARM_HOST = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
os.environ["OMP_NUM_THREADS"] = "1"
import torch, diffusers, peft, tensordict, safetensors.torch
from diffusers import FlowMatchEulerDiscreteScheduler
import torch.distributed.fsdp
from scaffold.verify.child.host import run_job
torch.set_num_threads(1)
print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if os.fork() == 0:
        os.setsid()
        output = os.open(order["log"], os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(os.path.dirname(order["log"]))
        try:
            run_job(order["job"], os.open(order["pipe"], os.O_WRONLY))
        finally:
            os._exit(0)
    print("started", flush=True)
    os.wait()
"""


@pytest.fixture(scope="session")
def warm_host() -> Iterator[subprocess.Popen[str]]:
    """Start the process that has torch."""
    process = subprocess.Popen(
        [sys.executable, "-c", WARM_HOST, str(REPOSITORY)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    with suppress(OSError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def warm(warm_host: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `verify` use the warm host, unless the job needs another diffusers."""
    cold = contract_level.start_host

    def start(job: dict[str, Any], log: Path) -> contract_level.HostProcess:
        if job["diffusers_path"] is not None:
            return cold(job, log)
        pipe = log.parent / "events"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        assert warm_host.stdin is not None
        assert warm_host.stdout is not None
        warm_host.stdin.write(json.dumps({"job": job, "pipe": str(pipe), "log": str(log)}) + "\n")
        warm_host.stdin.flush()
        assert warm_host.stdout.readline() == "started\n"
        os.set_blocking(reader, True)
        return contract_level.HostProcess(reader, lambda: None)

    monkeypatch.setattr(contract_level, "start_host", start)


@pytest.fixture
def copied(reference: Path, tmp_path: Path) -> Path:
    """Return the package folder in a writable copy of the reference tree, tests and documents left out."""
    for name in ("verl_omni", "examples"):
        shutil.copytree(reference / name, tmp_path / "copy" / name)
    return next((tmp_path / "copy" / "verl_omni" / "pipelines").iterdir())


Results = Callable[..., dict[str, CheckResult]]


@pytest.fixture
def results(warm: None) -> Results:
    """Return a function that verifies a package and gives the results by id."""

    def run(package: Path, *select: str, **options: Any) -> dict[str, CheckResult]:
        return by_id(verify(package, select=select, **options))

    return run


def by_id(report: VerifyReport) -> dict[str, CheckResult]:
    """Results by id."""
    return {check.id: check for check in report.checks}


@pytest.fixture
def edit() -> Callable[[Path, str, str], None]:
    """Return a function that replaces one anchored text of a file, and fails where it is not there exactly once."""

    def replace(file: Path, anchor: str, text: str) -> None:
        content = file.read_text(encoding="utf-8")
        assert content.count(anchor) == 1, f"{file.name} holds {anchor!r} {content.count(anchor)} times"
        file.write_text(content.replace(anchor, text), encoding="utf-8")

    return replace
