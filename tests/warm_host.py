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

from scaffold.verify import contract_level
from scaffold.verify.contract_level import HostProcess

PROGRAM = """
import gc, json, os, pkgutil, sys
sys.path.insert(0, sys.argv[1])
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
    """Starts the hosts of `verify`; a job that needs another diffusers gets a cold one."""

    def __init__(self) -> None:
        self._cold = contract_level.start_host
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(Path(__file__).resolve().parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self._answers("ready\n")

    def start(self, job: dict[str, Any], log: Path) -> HostProcess:
        """Start a host as `contract_level.start_host` does."""
        if job["diffusers_path"] is not None:
            return self._cold(job, log)
        pipe = log.parent / "events"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"job": job, "pipe": str(pipe), "log": str(log)}) + "\n")
        self._process.stdin.flush()
        self._answers("started\n")
        os.set_blocking(reader, True)
        return HostProcess(reader, lambda: None)

    def end(self) -> None:
        """End the process."""
        with suppress(OSError):
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _answers(self, line: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == line
