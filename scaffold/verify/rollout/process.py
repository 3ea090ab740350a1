"""The process inside the environment, from outside: its variables, its limits, and how it ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scaffold.files.reading import read_tail, read_text
from scaffold.limits import child_process
from scaffold.verify.child.contained import Contained, start_contained
from scaffold.verify.rollout.environment import BOOT, Environment
from scaffold.verify.rollout.forking import ForkedProcess, forked

# Of the parent's variables, these say where things are; others could change what is measured.
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "USER")
# docs/rollout.md gives the reason of each.
VARIABLES = {
    "OMNI_SCAFFOLD_ROLLOUT_ON_CPU": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VERL_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "MASTER_ADDR": "127.0.0.1",
    "LOCAL_RANK": "0",
    "RANK": "0",
    "WORLD_SIZE": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}
SECONDS = 900.0
MEGABYTES = 8000
MOST_PRINTED = 1 << 30  # bytes of a log; beyond it a run is stopped, for it fills the disk
LAST_BYTES = 1 << 16  # of a log, which may have gigabytes


@dataclass(frozen=True)
class Ending:
    """How a process ended; ``problem`` is None where all is well, else one line."""

    problem: str | None
    seconds: float
    megabytes: int


def run_process(
    environment: Environment,
    task: Path,
    log: Path,
    *,
    profile: str,
    seconds: float = SECONDS,
    megabytes: int = MEGABYTES,
) -> Ending:
    """Run one task to its end or to its limits.

    Args:
        environment: where it runs.
        task: file with the task.
        log: file that gets all it prints.
        profile: release that the kit imitates.
        seconds: wall time it may take.
        megabytes: resident memory it may hold.
    """
    given = child_process.environment()
    variables = {name: given[name] for name in PASSED_ON if name in given}
    # The folder of the log is the run's own, and removed with all that is in it.
    variables |= {**VARIABLES, "OMNI_SCAFFOLD_KIT_PROFILE": profile, "TMPDIR": str(log.parent)}
    started = time.monotonic()
    peak = 0
    stopped = said = None
    child = start_process(environment, [str(BOOT), str(task)], variables, log)
    try:
        while child.poll() is None:
            peak = max(peak, _resident(child.pid))
            if time.monotonic() - started > seconds:
                stopped = f"stopped after {seconds:.0f} s"
            elif peak > megabytes:
                stopped = f"stopped at {peak} MB of memory, {megabytes} are allowed"
            elif log.stat().st_size > MOST_PRINTED:
                stopped = f"stopped: it printed more than {MOST_PRINTED >> 20} MB"
            if stopped:
                said = last_line(log)  # before a shell adds what it thinks of its children's end
                break
            time.sleep(0.1)
    finally:
        child.end()
    lasted = time.monotonic() - started
    code = child.returncode
    if stopped is None and code == 0:
        return Ending(None, lasted, peak)
    if stopped is None:
        assert code is not None
        stopped = child_process.told_ending(code)
    return Ending(f"the process was {stopped}; its last line: {said or last_line(log)}", lasted, peak)


def start_process(
    environment: Environment, command: Sequence[str], variables: Mapping[str, str], log: Path
) -> Contained | ForkedProcess:
    """Start a script and its arguments in an environment: inside of ``forking`` as a fork, else by itself.

    Args:
        environment: where it runs.
        command: the script and its arguments.
        variables: its whole environment.
        log: file that gets all it prints; it runs in that folder.
    """
    with log.open("wb") as output:
        found = forked(environment, command, variables, log)
        if found is not None:
            return found
        return start_contained(
            [str(environment.python), *command],
            cwd=log.parent,
            variables=variables,
            stdout=output,
            stderr=child_process.SAME_AS_OUTPUT,
        )


def last_line(log: Path) -> str:
    """The last line of a log that says something, at most 400 characters of it."""
    lines = read_tail(log, LAST_BYTES).decode("utf-8", errors="replace").replace("\r", "\n").splitlines()
    found = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
    return " ".join(found.split())[:400]


def _resident(pid: int) -> int:
    """Resident megabytes of a process or of a child of it, whichever has more; 0 where the system does not say."""
    found = [0]
    with contextlib.suppress(OSError, ValueError, IndexError):
        for one in (str(pid), *read_text(f"/proc/{pid}/task/{pid}/children").split()):
            for line in read_text(f"/proc/{one}/status", errors="replace").splitlines():
                if line.startswith("VmRSS:"):
                    found.append(int(line.split()[1]) // 1024)
    return max(found)
