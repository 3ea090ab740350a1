"""Rendered shell scripts parse: ``bash -n``, which reads a script without running it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.limits import child_process
from scaffold.render.rendered import RenderedFile

SUFFIXES = (".sh",)

_WHERE = re.compile(r"^.*?: line (\d+): (.*)$", re.MULTILINE)


def finish(files: Mapping[str, RenderedFile], notes: list[str]) -> Mapping[str, RenderedFile]:
    """Return the files unchanged; raise `ScaffoldError` for the first that bash does not read."""
    bash = child_process.program("bash")
    if bash is None:
        notes.append("bash is not installed: rendered shell scripts were not checked")
        return files
    # bash -n checks a single script, so all are started before any is waited for.
    checks = [(file, _start(bash)) for file in files.values()]
    for file, process in checks:
        _, errors = process.communicate(file.content.encode())
        if process.returncode:
            message = errors.decode(errors="replace")
            where = _WHERE.search(message)
            line, problem = (f", line {where[1]} of its output", where[2]) if where else ("", message)
            raise ScaffoldError(f"template {file.template}{line}: not a shell script: {problem}")
    return files


def _start(bash: str) -> child_process.Process:
    # An empty environment keeps BASH_ENV out and the messages in one language.
    pipe, nothing = child_process.PIPE, child_process.NOTHING
    command = [bash, "--norc", "-n"]
    return child_process.start(
        command, cwd=Path("/"), variables={"LC_ALL": "C"}, stdin=pipe, stdout=nothing, stderr=pipe
    )
