"""Level ``rollout``, from the request to its results; nothing of the package runs in this process."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.files.documents import parse_json
from scaffold.files.formula import recorded
from scaffold.files.reading import expanded, read_tail, read_text
from scaffold.files.resources import installed_runtime, kit_root
from scaffold.scratch import scratch_folder
from scaffold.target import Checkout
from scaffold.upstream.locate import DEFAULT_VERSION
from scaffold.verify.package import Package, casts_module, model_names, open_package, require_release
from scaffold.verify.request import VerifyRequest
from scaffold.verify.result import CheckResult, Outcome
from scaffold.verify.rollout import formula_file
from scaffold.verify.rollout.check import Check, Measurement
from scaffold.verify.rollout.engine_side.tiny import constants
from scaffold.verify.rollout.environment import Environment, find_environment, in_use
from scaffold.verify.rollout.facts import NotEstablishedError, gather_facts
from scaffold.verify.rollout.judge import judge, judge_all
from scaffold.verify.rollout.process import Ending, run_process
from scaffold.verify.rollout.scenario import all_checks, scenarios
from scaffold.verify.rollout.task import Task

# Version of vllm-omni to run on, in place of the one that the package was made for.
VERSION = "OMNI_SCAFFOLD_ROLLOUT_VERSION"
# Checkout of the real verl-omni for a package that does not lie in one.
LIBRARY = "VERL_OMNI_SRC"
DTYPES = ("float32", "bfloat16")
KEPT_BYTES = 64 << 20  # of a log, its end
MOST_RESULTS = 200_000_000  # bytes


@dataclass(frozen=True)
class Plan:
    """What is the same for both processes; below ``tiny`` each makes a tiny checkpoint of its own."""

    package: Package
    environment: Environment
    facts: dict[str, Any]
    library: Path | None
    checkpoint: Path
    builder: Path | None
    tiny: Path | None = None

    @property
    def profile(self) -> str:
        """Release of verl-omni that the kit imitates."""
        return str(self.package.spec.get("target", {}).get("profile") or "main")

    def task(self, dtype: str, results: Path, **asked: Any) -> Task:
        """What a process of this precision is told.

        Args:
            dtype: ``float32`` or ``bfloat16``.
            results: file to which it appends what it measures.
            asked: further fields of the task, such as ``checks`` or ``recording``.
        """
        given: dict[str, Any] = {
            "root": str(self.package.sources[0]),
            "runtime": None if self.package.carries_runtime else str(installed_runtime()),
            "package": self.package.module,
            "library": None if self.library is None else str(self.library),
            "kit": str(kit_root()),
            "checkpoint": str(self.tiny / dtype if self.tiny is not None else self.checkpoint),
            "builder": None if self.builder is None else str(self.builder),
            "dtype": dtype,
            "facts": self.facts,
            "checks": [],
            "results": str(results),
        }
        return Task(**{**given, **asked})


def engine_check(dtype: str) -> Check:
    """Return the check that the process of one precision starts and lives to its end."""
    title = f"In {dtype}, engine and training load the package and its checkpoint, and the process lives to its end"
    return Check(f"rollout-engine-{dtype}", title, None, None)


def level_checks() -> tuple[Check, ...]:
    """Return every check of the level."""
    return (*(engine_check(dtype) for dtype in DTYPES), *all_checks())


def check_ids() -> list[str]:
    """Return the ids of the level's checks, in the order they are reported."""
    return [check.id for check in level_checks()]


def require(
    request: VerifyRequest, scratch: Path, *, version: str | None = None, environment: Environment | None = None
) -> Plan:
    """Return how the level will run; a requested level is never skipped silently.

    Args:
        request: package, checkpoint and selection.
        scratch: a folder for what the run writes.
        version: of vllm-omni; by default ``$OMNI_SCAFFOLD_ROLLOUT_VERSION``, else the one the package was made for.
        environment: run in this one, which the caller keeps as it is; by default the one of the version.

    Raises:
        ScaffoldError: its environment or something it takes is missing.
    """
    package = open_package(request.package)
    found = environment or environment_of(package, version)
    if isinstance(found, str):
        raise ScaffoldError(f"level rollout cannot run: {found}")
    try:
        return make_plan(package, found, request.checkpoint, scratch)
    except NotEstablishedError as reason:
        raise ScaffoldError(f"level rollout cannot run: {reason}") from None


def run_level(
    request: VerifyRequest,
    *,
    version: str | None = None,
    environment: Environment | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Run the level.

    Args, raises:
        As for :func:`require`; ``tell`` gets a line for each check.
    """
    wanted = [check for check in level_checks() if not request.select or check.id in request.select]
    if not wanted:
        return Outcome([])
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder("rollout"))
        plan = require(request, scratch, version=version, environment=environment)
        if environment is None:
            stack.enter_context(in_use(plan.environment))
        results: list[CheckResult] = []
        versions: dict[str, str] = {}
        for dtype in DTYPES:
            checks, started = _run_dtype(plan, dtype, wanted, scratch)
            results += checks
            for check in checks:
                tell(check.line)
            versions |= started
    written = formula_file.write(plan.package.folder, results)
    if written is not None:
        tell(f"wrote {written.name}: what the pipeline makes of its predictions, for review")
    return Outcome(results, {**versions, **_origins(plan)} if versions else {})


def _origins(plan: Plan) -> dict[str, str]:
    """Where the libraries of the process come from, in the words of the contract level."""
    library = "kit" if plan.library is None else "real"
    return {"verl_omni is": library, "verl is": library, "vllm_omni is": "real"}


def environment_of(package: Package, version: str | None = None) -> Environment | str:
    """The environment that a package runs in, or why there is none to use."""
    return find_environment(version or os.environ.get(VERSION) or package_version(package))


def package_version(package: Package) -> str:
    """The version of vllm-omni that a package was made for: its spec's, its checkout's pin, or the default."""
    version = package.spec.get("upstream", {}).get("version")
    if version is None and package.checkout:
        try:
            version = Checkout.open(str(package.root)).vllm_omni_pin
        except ScaffoldError:
            version = None
    return str(version or DEFAULT_VERSION)


def make_plan(package: Package, environment: Environment, checkpoint: Path | None, scratch: Path) -> Plan:
    """Determine the facts that drive the package, and the source of its checkpoint.

    Raises:
        NotEstablishedError: something it takes is missing.
    """
    facts = {**gather_facts(package, environment, checkpoint), "half_module": casts_module(package)}
    facts |= {"formula": recorded(package.folder), "engine": environment.version}
    builder = tiny = None
    if facts.get("ported"):
        checkpoint = tiny = scratch / "checkpoint"
    elif checkpoint is None:
        smoke = package.layout.smoke
        builders = [f"{smoke}build_{model}_tiny_random.py" for model in model_names(package)]
        builder = next((place for file in builders if (place := package.root / file).is_file()), None)
        if builder is None:
            named = f"{' and '.join(builders[:3])} {'is' if len(builders) == 1 else 'are'} missing"
            raise NotEstablishedError(f"there is no tiny checkpoint to run: {named}; give --checkpoint")
        checkpoint = scratch / "checkpoint"
    library = package.root if package.checkout else None
    if library is None and os.environ.get(LIBRARY):
        library = expanded(os.environ[LIBRARY]).resolve()
        require_release(package, library)
    return Plan(package, environment, facts, library, checkpoint, builder, tiny)


def _run_dtype(
    plan: Plan, dtype: str, wanted: Sequence[Check], scratch: Path
) -> tuple[list[CheckResult], dict[str, str]]:
    """Results of the checks of one precision, and the versions and replaced sizes that its process ran with."""
    own = {check.id for scenario in scenarios() if dtype == scenario.DTYPE for check in scenario.CHECKS}
    checks = [check for check in wanted if check.id in own]
    engine = engine_check(dtype)
    if not checks and engine not in wanted:
        return [], {}
    results = scratch / f"{dtype}.jsonl"
    task = plan.task(dtype, results, checks=[check.id for check in checks])
    task_file = scratch / f"{dtype}.json"
    task.write(task_file)
    log = scratch / f"{dtype}.log"
    ending = run_process(plan.environment, task_file, log, profile=plan.profile)
    events = _events(results)
    if ending.problem is not None or not any(event["event"] == "started" for event in events):
        problem = ending.problem or "the process ended without starting"
        ending = replace(ending, problem=f"{problem}; all it printed: {kept_log(log, dtype)}")
    elif any(event.get("raised") for event in events):
        kept = kept_log(log, dtype)
        events = [
            {**event, "reason": f"{event['reason']}; traceback: {kept}"} if event.get("raised") else event
            for event in events
        ]
    measured = {event["check"]: _measurement(event) for event in events if event["event"] == "measured"}
    alive = _engine_measurement(engine, ending, events, "real verl_omni" if plan.library else "kit")
    result = judge_all(checks, measured, "the process ended before this was measured")
    if engine in wanted or alive.value:
        result.insert(0, judge(engine, alive))
    versions: dict[str, str] = next((event["versions"] for event in events if event["event"] == "started"), {})
    return result, {**versions, **constants.told(Path(task.checkpoint))} if versions else {}


def _engine_measurement(check: Check, ending: Ending, events: list[dict[str, Any]], library: str) -> Measurement:
    started = next((event for event in events if event["event"] == "started"), None)
    if ending.problem is not None or started is None:
        return Measurement(check.id, 1.0, str(ending.problem), limit=0.0, seconds=ending.seconds)
    versions = ", ".join(f"{name} {version}" for name, version in started["versions"].items())
    told = f"{versions}; {library}; {ending.megabytes} MB at most"
    return Measurement(check.id, 0.0, told, limit=0.0, seconds=ending.seconds)


def _measurement(event: dict[str, Any]) -> Measurement:
    return Measurement(**{name: value for name, value in event.items() if name not in ("event", "raised")})


def kept_log(log: Path, dtype: str) -> Path:
    """Where a copy of a log, or of the end of a long one, stays after the run."""
    handle, name = tempfile.mkstemp(prefix=f"omni-scaffold-{dtype}-", suffix=".log")
    with os.fdopen(handle, "wb") as target:
        target.write(read_tail(log, KEPT_BYTES))
    return Path(name)


def _events(path: Path) -> list[dict[str, Any]]:
    """Events of a process; the last line of one that was killed may be cut."""
    events: list[dict[str, Any]] = []
    try:
        lines = read_text(path, MOST_RESULTS, errors="replace").splitlines()
    except OSError:
        return events
    for line in lines:
        try:
            event = parse_json(line)
        except ValueError:
            break
        if isinstance(event, dict) and "event" in event:
            events.append(event)
    return events
