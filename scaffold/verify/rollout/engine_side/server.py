"""Imports the engine once and runs each request in a fork, since the imports take longer than most requests.

A request is a line of JSON on stdin, with ``command`` (a script and its arguments), ``variables`` (the whole
environment), ``folder`` to run in and ``log`` for the output. The answers come on what was stdout: ``ready``, then for
each request the ``pid`` of its process and, when that has ended, its ``status`` as ``os.waitpid`` gives it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from scaffold.limits.cpu_limit import collector_off
from scaffold.verify.child.leftovers import adopt_orphans, die_with_parent, end_descendants

# Modules that every run of the engine imports; forks import the model and the package.
MODULES = (
    "diffusers.models",
    "diffusers.schedulers",
    "peft",
    "tensordict",
    "transformers",
    "vllm.lora.lora_model",
    "vllm_omni.diffusion.data",
    "vllm_omni.diffusion.registry",
    "vllm_omni.diffusion.request",
    "vllm_omni.diffusion.worker.diffusion_worker",
    "vllm_omni.inputs.data",
)
# Names that are looked up only when they are asked for.
LAZY = {
    "transformers": ("AutoTokenizer", "PreTrainedModel", "PreTrainedTokenizerFast", "ProcessorMixin"),
    "diffusers": ("ModelMixin", "SchedulerMixin", "AutoencoderKL"),
}


def serve(entry: Path) -> None:
    """Answer requests until there are no more.

    Args:
        entry: the script that runs a task in this process; any other is run as a program.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the imports print is no answer
    with collector_off():
        _import()
    _say(answers, ready=True)
    # Objects of the imports are not looked at by the collector, so that forks share their memory.
    gc.collect()
    gc.freeze()
    adopt_orphans()
    for line in sys.stdin:
        request = json.loads(line)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(OSError):
                os.close(answers.fileno())
            _run(request, entry)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        _say(answers, pid=pid)
        status = os.waitpid(pid, 0)[1]
        end_descendants(os.getpid())
        _say(answers, status=status)


def _import() -> None:
    from scaffold.verify.rollout.engine_side import settings

    settings.before_imports()
    for name in MODULES:
        importlib.import_module(name)
    for library, names in LAZY.items():
        for name in names:
            getattr(importlib.import_module(library), name)


def _say(answers: Any, **content: Any) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


def _run(request: dict[str, Any], entry: Path) -> None:
    """Run one request as a new interpreter would, and end the process."""
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)  # here and in the server: whichever comes first
        die_with_parent()
        for stream, path in ((0, os.devnull), (1, request["log"])):
            descriptor = os.open(path, os.O_RDONLY if stream == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(descriptor, stream)
            os.close(descriptor)
        os.dup2(1, 2)
        os.environ.clear()
        os.environ.update(request["variables"])
        tempfile.tempdir = None  # that of the variables
        os.chdir(request["folder"])
        code = _script(request["command"], entry)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        # Exit without finalizing objects, which would copy all the memory that forks share.
        os._exit(code & 0xFF)


def _script(command: list[str], entry: Path) -> int:
    sys.argv = list(command)
    script = Path(command[0])
    if script == entry:
        from scaffold.verify.rollout.engine_side.main import main

        return main(Path(command[1]))
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
    return 0
