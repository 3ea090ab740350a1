"""Asking git about a folder; nothing of the repository's configuration is run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# A checkout may be anybody's: its configuration must not name programs that we start.
_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "log.showSignature=false")
TIMEOUT_SECONDS = 60


def git(root: Path, *arguments: str, stdin: bytes | None = None) -> bytes | None:
    """Return what a git command prints; None where it fails, or there is no git."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *_QUIET, *arguments],
            input=stdin if stdin is not None else b"",
            capture_output=True,
            env=environment,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def uncommitted(root: Path) -> list[str]:
    """Return the files of a checkout that differ from its last commit, untracked ones included; empty without git."""
    top = git(root, "rev-parse", "--show-prefix")
    if top is None:
        return []
    prefix = os.fsdecode(top).rstrip("\n")
    printed = git(root, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", ".")
    paths = [os.fsdecode(entry[3:]) for entry in (printed or b"").split(b"\0") if len(entry) > 3]
    return sorted(path.removeprefix(prefix) for path in paths)


def versions(root: Path, path: str, limit: int = 50) -> list[bytes]:
    """Return the contents that ``path`` had in the history of the current branch, the newest first."""
    printed = git(root, "log", "--format=%H", f"--max-count={limit}", "--", path)
    found = []
    for commit in (printed or b"").decode().split():
        content = git(root, "show", "--no-textconv", "--no-ext-diff", f"{commit}:./{path}")
        if content is not None:
            found.append(content)
    return found
