"""Runs uv with pip's package indexes, and reports a failure in one line."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.limits import child_process

# pip's settings for package indexes, and uv's variable for each.
_SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
_SETTING = re.compile(r"^(?:global|install|download|:env:)\.([a-z-]+)='(.*)'$", re.MULTILINE)
_OFFLINE = ("Failed to fetch", "error sending request", "dns error", "Connection refused", "timed out")
_LINE = re.compile(r"^\s*(?:error|cause|×|╰─▶|├─▶)?:?\s*", re.IGNORECASE)


class NoSetError(ScaffoldError):
    """The requirements cannot be resolved together; ``told`` is uv's whole explanation."""

    told = ""


def run_uv(what: str, arguments: Sequence[str], *, folder: Path, seconds: float, hint: str) -> str:
    """Run uv and return its stdout.

    Args:
        what: what is requested, such as ``libraries for vllm-omni 0.30.0``, for errors.
        arguments: a command of uv and its arguments.
        folder: the working directory; a ``pyproject.toml`` there may hold settings.
        seconds: the timeout.
        hint: what to do if no index can be reached.

    Raises:
        NoSetError: the requirements cannot be resolved together.
        ScaffoldError: there is no uv, it timed out, or the index cannot be reached.
    """
    try:
        done = child_process.run_text([_program(), *arguments], seconds=seconds, cwd=folder, variables=_variables())
    except child_process.TookTooLong:
        raise ScaffoldError(f"finding {what} took longer than {seconds:.0f} seconds", hint=hint) from None
    if done.returncode == 0:
        return done.stdout
    raise _failure(what, done.stderr or done.stdout, hint)


def _program() -> str:
    try:
        import uv
    except ImportError:
        found = child_process.program("uv")
    else:
        found = uv.find_uv_bin()
    if found is None:
        raise ScaffoldError("uv, which finds what a new release needs, is not installed", hint="pip install uv")
    return found


def _variables() -> dict[str, str]:
    """Return the environment for uv: like pip, uv takes the best version of all indexes, links and hosts."""
    settings = child_process.run_text([sys.executable, "-m", "pip", "config", "list"], seconds=60).stdout
    # pip lists configuration files first and environment variables last, which take precedence.
    found = {name: value for name, value in _SETTING.findall(settings) if name in _SETTINGS}
    asked = {_SETTINGS[name]: value for name, value in found.items()}
    return child_process.environment(UV_INDEX_STRATEGY="unsafe-best-match", UV_PYTHON_DOWNLOADS="never", **asked)


def _failure(what: str, output: str, hint: str) -> ScaffoldError:
    if any(sign in output for sign in _OFFLINE):
        return ScaffoldError(f"cannot find {what}: the package index is down or cannot be reached", hint=hint)
    told = [_LINE.sub("", line) for line in output.partition("\nhint:")[0].splitlines()]
    because = next((index for index, line in enumerate(told) if line.startswith(("Because", "And because"))), 0)
    lines = [line for line in told[because : because + 2] if line]
    error = NoSetError(f"cannot find {what}: {' '.join(lines) or 'uv names no cause'}", hint=hint)
    error.told = output
    return error
