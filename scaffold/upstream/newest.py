"""The newest release on the package index."""

from __future__ import annotations

import re

from scaffold.errors import ScaffoldError
from scaffold.terminal.progress import step
from scaffold.upstream.pip import run_pip

TIMEOUT_SECONDS = 120
_FIRST = re.compile(r"^Available versions: ([^,\s]+)", re.MULTILINE)


def newest_release(distribution: str) -> str:
    """Return the newest version of ``distribution`` that is not a pre-release.

    Raises:
        ScaffoldError: the index cannot be reached, or knows no such distribution.
    """
    hint = "name a version, a wheel or a folder instead"
    arguments = ["index", "versions", distribution]
    with step(f"asking for the newest {distribution}"):
        output = run_pip(f"{distribution} of any version", arguments, seconds=TIMEOUT_SECONDS, hint=hint)
    found = _FIRST.search(output)
    if found is None:
        raise ScaffoldError(f"pip lists no release of {distribution}", hint=hint)
    return found[1]
