"""The contract kit on the path, inside this process or in a child."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scaffold.files.resources import kit_root

KIT_PACKAGES = ("verl_omni", "verl", "vllm_omni", "omni_scaffold_kit")
RunPython = Callable[..., str]


def _forget_kit() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in KIT_PACKAGES]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith(KIT_PACKAGES[-1])]


@pytest.fixture(scope="module")
def kit() -> Iterator[Path]:
    """Put the kit first on ``sys.path`` for one test module, and take every trace of it away afterwards."""
    root = kit_root()
    previous = os.environ.pop("OMNI_SCAFFOLD_KIT_PROFILE", None)
    _forget_kit()
    sys.path.insert(0, str(root))
    try:
        yield root
    finally:
        sys.path.remove(str(root))
        _forget_kit()
        if previous is not None:
            os.environ["OMNI_SCAFFOLD_KIT_PROFILE"] = previous


@pytest.fixture(scope="session")
def run_python(warm_python: Callable[..., Any]) -> RunPython:
    """Run code in a fresh interpreter: ``run_python(code, *path_entries, profile=None) -> stdout``."""

    def run(code: str, *path: Path, profile: str | None = None, check: bool = True) -> str:
        inherited = os.environ.get("PYTHONPATH", "")
        entries = [str(entry) for entry in path] + ([inherited] if inherited else [])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entries), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("OMNI_SCAFFOLD_KIT_PROFILE", None)
        if profile is not None:
            environment["OMNI_SCAFFOLD_KIT_PROFILE"] = profile
        done = warm_python(["-c", code], env=environment)
        if check:
            assert done.returncode == 0, done.stderr
        return done.stdout if check else done.stderr

    return run
