"""The newest release on the package index."""

from __future__ import annotations

import re
import subprocess

from scaffold.progress import step
from scaffold.upstream.fetch import failure, pip_commands

TIMEOUT_SECONDS = 120
_FIRST = re.compile(r"^Available versions: ([^,\s]+)", re.MULTILINE)


def newest_release(distribution: str) -> str:
    """Return the newest version of ``distribution`` that is no pre-release.

    Raises:
        ScaffoldError: the index cannot be reached, or knows no such distribution.
    """
    options = ["--disable-pip-version-check", "--no-input", "--no-color", "--ignore-requires-python"]
    output = ""
    for command in pip_commands():
        try:
            with step(f"asking for the newest {distribution}"):
                done = subprocess.run(
                    [*command, "index", "versions", distribution, *options],
                    capture_output=True,
                    text=True,
                    timeout=TIMEOUT_SECONDS,
                    check=False,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            output = f"timed out: {error}"
            continue
        found = _FIRST.search(done.stdout)
        if found is not None:
            return found[1]
        output = done.stderr + done.stdout
        if "No module named pip" not in output:
            break
    raise failure(distribution, "newest", output)
