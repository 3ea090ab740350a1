"""A host of `verify` that has torch already: each job runs in a fork of one process, by the code of the real host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from scaffold.verify.contract_level import HostProcess

PROGRAM = """
import gc, json, os, pkgutil, sys
sys.path[:0] = sys.argv[1:]
os.environ["OMP_NUM_THREADS"] = "1"
import torch, diffusers, peft, tensordict, safetensors.torch
from diffusers import FlowMatchEulerDiscreteScheduler
import torch.distributed.fsdp
from scaffold.verify import contracts, subject
from scaffold.verify.child.host import run_job
for found in pkgutil.iter_modules(contracts.__path__):
    subject.contract_of(found.name, {})
torch.set_num_threads(1)
gc.collect()
gc.freeze()
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


class WarmHost:
    """Starts the hosts of `verify`, as forks of one process for each diffusers that is asked for."""

    def __init__(self) -> None:
        self._processes: dict[str | None, subprocess.Popen[str]] = {}

    def start(self, job: dict[str, Any], log: Path) -> HostProcess:
        """Start a host as `contract_level.start_host` does."""
        pipe = log.parent / "events"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        process = self._process(job["diffusers_path"])
        assert process.stdin is not None
        process.stdin.write(json.dumps({"job": job, "pipe": str(pipe), "log": str(log)}) + "\n")
        process.stdin.flush()
        _answers(process, "started\n")
        os.set_blocking(reader, True)
        return HostProcess(reader, lambda: None)

    def end(self) -> None:
        """End the processes."""
        for process in self._processes.values():
            with suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()

    def _process(self, diffusers: str | None) -> subprocess.Popen[str]:
        if diffusers not in self._processes:
            first = [] if diffusers is None else [diffusers]
            self._processes[diffusers] = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *first, str(Path(__file__).resolve().parents[1])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            )
            _answers(self._processes[diffusers], "ready\n")
        return self._processes[diffusers]


def _answers(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == line
