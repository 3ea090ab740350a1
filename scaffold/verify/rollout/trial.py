"""A new environment tried out: a package that `new` renders for its vllm-omni runs in it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scaffold import child_process
from scaffold.errors import ScaffoldError
from scaffold.progress import step
from scaffold.resources import PACKAGE_ROOT
from scaffold.verify.request import VerifyRequest
from scaffold.verify.rollout.environment import Environment

MODEL = "trial"
SECONDS = 600


@dataclass(frozen=True)
class Tried:
    """What a trial showed.

    Attributes:
        pipeline: whose package ran.
        passed: how many checks of the level passed.
        failed: ids of those that did not; they tell of the release and the package, not of the environment.
    """

    pipeline: str
    passed: int
    failed: tuple[str, ...]


def try_out(environment: Environment, pipelines: Sequence[str]) -> Tried:
    """Run every check of level ``rollout`` with the first of these pipelines that can be rendered for the release.

    Raises:
        ScaffoldError: none can, or in none of the precisions did engine and training come up and live to their end.
    """
    with tempfile.TemporaryDirectory(prefix="omni-scaffold-trial-") as scratch:
        with step(f"environment of vllm-omni {environment.version}: rendering a package to try it out"):
            pipeline, package = _rendered(environment.version, pipelines, Path(scratch))
        with step(f"environment of vllm-omni {environment.version}: running {pipeline}"):
            return _run(environment, pipeline, package)


def _run(environment: Environment, pipeline: str, package: Path) -> Tried:
    from scaffold.verify.rollout.level import DTYPES, engine_check, run_level

    results = run_level(VerifyRequest(package, level="rollout"), environment=environment).checks
    engines = {engine_check(dtype).id for dtype in DTYPES}
    down = [result for result in results if result.id in engines and result.status != "pass"]
    if down:
        why = f"{pipeline} does not run in the environment of vllm-omni {environment.version}: {down[0].reason}"
        raise ScaffoldError(why)
    failed = tuple(result.id for result in results if result.status not in ("pass", "skip"))
    return Tried(pipeline, sum(result.status == "pass" for result in results), failed)


def _rendered(version: str, pipelines: Sequence[str], scratch: Path) -> tuple[str, Path]:
    """The first package that can be rendered, by the command that a user has for it."""
    reason = "no pipeline is named to try it out"
    variables = child_process.environment(PYTHONPATH=str(PACKAGE_ROOT.parent))
    for pipeline in pipelines:
        out = scratch / pipeline
        command = [sys.executable, "-m", "scaffold", "new", MODEL, "--pipeline", pipeline]
        command += ["--vllm-omni", version, "--out", str(out), "--packaged"]
        try:
            done = child_process.run_text(command, seconds=SECONDS, variables=variables)
        except child_process.TookTooLong:
            reason = f"{pipeline} took longer than {SECONDS} s to render"
            continue
        if done.returncode == 0:
            return pipeline, next(out.glob("verl_omni/pipelines/*/scaffold.toml")).parent
        reason = (done.stderr.strip().splitlines() or [child_process.told_ending(done.returncode)])[-1]
    raise ScaffoldError(f"no package to try the environment of vllm-omni {version} out can be rendered: {reason}")
