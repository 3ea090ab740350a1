"""A host of `verify` that has torch already: a fork of the warm Python runs each job, by the code of the real host."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from warm_python import WarmPython

from scaffold.verify.host_process import HostProcess

PROGRAM = """
import json, os, sys
sys.path[0] = sys.argv[1]
from scaffold.verify.child.host import run_job
try:
    run_job(json.loads(sys.argv[2]), os.open(sys.argv[3], os.O_WRONLY))
finally:
    os._exit(0)
"""
ROOT = Path(__file__).resolve().parents[1]


class WarmHost:
    """Starts the hosts of `verify`; those of a job that needs another diffusers are forks of another process."""

    def __init__(self, python: WarmPython, other: WarmPython) -> None:
        self._python, self._other = python, other

    def start(self, job: dict[str, Any], log: Path) -> HostProcess:
        """Start a host as `host_process.start_host` does."""
        pipe = log.parent / "events"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        command = ["-c", PROGRAM, str(ROOT), json.dumps(job), str(pipe)]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        python, libraries = (self._other if job["diffusers_path"] else self._python), job["diffusers_path"]
        answers = python.start(command, cwd=log.parent, env=environment, out=log, err=log, libraries=libraries)
        answers.recv(1)  # it has begun
        answers.close()
        os.set_blocking(reader, True)
        return HostProcess(reader, lambda: None)
