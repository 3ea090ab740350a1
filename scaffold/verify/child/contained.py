"""Starts a program through `keeper`, which kills all its processes when the program or the tool ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from scaffold.files.reading import read_tail
from scaffold.limits import child_process
from scaffold.scratch import scratch_folder
from scaffold.verify.child.leftovers import end_descendants

KEEPER = Path(__file__).resolve().parent / "keeper.py"
MOST_READ = 8 << 20
"""How many bytes are read from the end of a program's output."""
ENDING_SECONDS = 60.0
"""Seconds a keeper may take to kill its processes; a stopped keeper would never do so."""


class Contained:
    """A running program below a keeper, with the methods of a `Process` that a run needs."""

    def __init__(self, keeper: child_process.Process, lifeline: int) -> None:
        self._keeper, self._lifeline = keeper, lifeline
        self.stdin, self.stdout = keeper.stdin, keeper.stdout

    @property
    def pid(self) -> int:
        """Of the keeper."""
        return self._keeper.pid

    @property
    def returncode(self) -> int | None:
        """The program's exit code, negative for a signal; None until its end was noticed."""
        return self._keeper.returncode

    def poll(self) -> int | None:
        """The program's exit code; None while it runs."""
        return self._keeper.poll()

    def wait(self, seconds: float | None = None) -> int:
        """Wait for its end.

        Raises:
            TookTooLong: it has not ended in time.
        """
        return self._keeper.wait(seconds)

    def end(self) -> None:
        """Kill the program and all processes it started; a second call has no effect."""
        if self._lifeline < 0:
            return
        os.close(self._lifeline)
        self._lifeline = -1
        try:
            self._keeper.wait(ENDING_SECONDS)
        except child_process.TookTooLong:
            end_descendants(self._keeper.pid)
            self._keeper.kill()
            self._keeper.wait()


def start_contained(
    command: Sequence[str],
    *,
    cwd: Path,
    variables: Mapping[str, str],
    stdin: int = child_process.NOTHING,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    inherited: Sequence[int] = (),
) -> Contained:
    """Start a program; the caller must call `Contained.end`, even if the program ends by itself.

    Args:
        command: a path, or a name to look up, and arguments.
        cwd, variables, stdin, stdout, stderr, inherited: as for `child_process.start`.
    """
    name, *arguments = command
    path = name if os.sep in name else child_process.program(name) or name
    ours, lifeline = os.pipe()
    try:
        keeper = child_process.start(
            [sys.executable, "-I", "-S", str(KEEPER), str(ours), ",".join(map(str, inherited)), path, *arguments],
            cwd=cwd,
            variables=variables,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            inherited=(ours, *inherited),
            own_session=True,
        )
    except BaseException:
        os.close(lifeline)
        raise
    finally:
        os.close(ours)
    return Contained(keeper, lifeline)


def run_contained(
    command: Sequence[str], *, seconds: float | None, variables: Mapping[str, str]
) -> child_process.Ended[str]:
    """Run a program to its end in an empty folder; ``stdout`` holds its output, or the end of a long one.

    Raises:
        OSError: it cannot be started.
        TookTooLong: it was ended.
    """
    with scratch_folder("empty") as folder:
        log = folder / "log"
        with log.open("wb") as output:
            program = start_contained(
                command, cwd=folder, variables=variables, stdout=output, stderr=child_process.SAME_AS_OUTPUT
            )
        try:
            code = program.wait(seconds)
        finally:
            program.end()
        return child_process.Ended(list(command), code, read_tail(log, MOST_READ).decode(errors="replace"), "")
