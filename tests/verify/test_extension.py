"""The extension of vllm that a processor can run is the one that it takes, in the processes of both levels."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.doctor import examine
from scaffold.doctor.examine import processor_flags, taken_extension
from scaffold.limits.child_process import told_ending
from scaffold.target import Checkout, profile_by_name
from scaffold.verify.rollout.environment import OVERRIDE, Environment, find_environment
from scaffold.verify.rollout.pins import known_versions
from scaffold.verify.rollout.process import VARIABLES
from scaffold.verify.train.run import RunPlan, variables
from scaffold.verify.train.trainers import SYNC, Trainer
from scaffold.verify.train.variants import VARIANTS

SMALL = {"fma", "avx2", "sse4_2"}
MIDDLE = SMALL | {"avx512f", "avx512vl", "avx512bw", "avx512dq"}
LARGE = MIDDLE | {"avx512_bf16"}


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (LARGE, "_C"),
        (MIDDLE, "_C_AVX512"),
        (LARGE - {"avx512vl"}, "_C_AVX2"),
        (SMALL, "_C_AVX2"),
        (SMALL - {"avx2"}, None),
    ],
)
def test_largest_extension_that_runs_is_taken(flags: set[str], name: str | None) -> None:
    assert taken_extension(frozenset(flags)) == name


# One process of each kind; a fork is a processor of its own.
LOAD = """
import json, os, sys
import torch
torch.cpu._is_avx512_bf16_supported = lambda: False
for middle in json.loads(sys.argv[1]):
    if os.fork() == 0:
        torch.cpu._is_avx512_supported = lambda: middle
        import vllm._custom_ops
        maps = open("/proc/self/maps").read().splitlines()
        print(json.dumps(sorted({line.rpartition("/")[2] for line in maps if "/vllm/_C" in line})), flush=True)
        os._exit(0)
    if status := os.waitstatus_to_exitcode(os.wait()[1]):
        sys.exit(f"with AVX-512 {middle}: ended with {status}")
"""


@pytest.mark.rollout
@pytest.mark.parametrize("level", ["rollout", "train"])
@pytest.mark.parametrize("version", known_versions())
def test_processes_of_both_levels_load_it(tmp_path: Path, version: str, level: str) -> None:
    if isinstance(found := find_environment(version), str):
        pytest.skip(found)
    if taken_extension(processor_flags() or frozenset()) is None:
        pytest.skip("this processor runs none of them")
    script = tmp_path / "smoke.sh"
    plan = RunPlan(
        found,
        tmp_path,
        None,
        script,
        tmp_path / "model",
        tmp_path,
        VARIANTS[0],
        Trainer(SYNC, "verl_omni.trainer.main_diffusion_v1"),
        1,
        (),
        "foo",
    )
    given = VARIABLES if level == "rollout" else variables(plan, tmp_path, "0" * 8, tmp_path)
    # What the operating system would not let this processor run stays away.
    larger = taken_extension(processor_flags() or frozenset()) != "_C_AVX2"
    command = [str(found.python), "-c", LOAD, json.dumps([False, larger])]
    done = subprocess.run(command, env={**given}, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, told_ending(done.returncode) + done.stderr[-2000:]
    expected = [taken_extension(frozenset(flags)) for flags in (SMALL, MIDDLE if larger else SMALL)]
    loaded = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert loaded == [[f"{name}.abi3.so"] for name in expected]


def test_doctor_says_which_and_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python_file: Callable[[Path, str], Any]
) -> None:
    module = python_file(Path(__file__).parents[1] / "target" / "test_target.py", "stand_in_checkout")
    checkout = Checkout.open(module.standin(tmp_path / "verl-omni", "main"))
    folder = tmp_path / "environment"
    place = folder / "lib" / "python3.11" / "site-packages" / "vllm"
    for path in (place, folder / "bin"):
        path.mkdir(parents=True)
    (folder / "bin" / "python").touch()
    (place / "_C_AVX2.abi3.so").touch()
    monkeypatch.setenv(OVERRIDE, str(folder))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert isinstance(find_environment("1"), Environment)

    def said(flags: set[str] | None) -> tuple[str, str | None, str | None]:
        known = None if flags is None else frozenset(flags)
        monkeypatch.setattr(sys.modules["scaffold.doctor.examine"], "processor_flags", lambda: known)
        name = f"environment-{profile_by_name('main').vllm_omni}"
        found = next(finding for finding in examine(checkout) if finding.name == name)
        return found.state, found.found, found.problem

    assert said(SMALL) == ("ok", f"{folder}, vllm's _C_AVX2 on this processor", None)
    assert said(None) == ("ok", str(folder), None)
    assert said(LARGE) == ("wrong", str(folder), "its vllm holds no _C, the build for this processor")
    assert said(set())[2] == "vllm is built for processors with AVX2, which this one has not"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (3, "over with exit code 3"),
        (132, "over with exit code 132 (SIGILL, illegal instruction: a library is built for another processor)"),
        (-4, "killed by SIGILL, illegal instruction: a library is built for another processor"),
        (137, "over with exit code 137 (SIGKILL, perhaps out of memory)"),
        (-15, "killed by SIGTERM"),
        (255, "over with exit code 255"),
    ],
)
def test_ending_is_told_in_words(code: int, told: str) -> None:
    assert told_ending(code) == told
