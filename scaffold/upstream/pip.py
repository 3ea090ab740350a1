"""Runs pip, and reports a failure in one line."""

from __future__ import annotations

import re
import sys
from itertools import zip_longest

from scaffold.errors import ScaffoldError
from scaffold.limits import child_process
from scaffold.terminal.progress import step

# What pip -vv prints for each index page it cannot fetch.
_MISSED = re.compile(r"Could not fetch URL \S+: (?:(\d{3}) (?:Client|Server) Error)?")
_OFFLINE = (
    "connection broken by",
    "Max retries exceeded",
    "ConnectionError",
    "name resolution",
    "timed out",
    "SSLError",
)
# Indexes pip did not search: none are configured, or one is not trusted.
_PLACES = re.compile(r"(\d+) location\(s\) to search for versions of")
_UNTRUSTED = re.compile(r"The repository located at (\S+) is not a trusted")
_KNOWN = re.compile(r"from versions: ([^)]*)\)")
_NO_PIP = "No module named pip"
_OPTIONS = ["-vv", "--disable-pip-version-check", "--no-input", "--no-color", "--ignore-requires-python"]


def run_pip(what: str, arguments: list[str], *, seconds: float, hint: str) -> str:
    """Run pip, preferably that of this Python, and return its stdout.

    Args:
        what: what is requested, such as ``vllm-omni 0.30.0``, for errors.
        arguments: a command of pip and its arguments.
        seconds: the timeout.
        hint: what to do if no index can be reached.

    Raises:
        ScaffoldError: there is no pip, it timed out, the index cannot be reached, or lacks what is requested.
    """
    output = _NO_PIP
    on_path = child_process.program("pip")
    for command in ([sys.executable, "-m", "pip"], *([[on_path]] if on_path else [])):
        try:
            done = child_process.run_text([*command, *arguments, *_OPTIONS], seconds=seconds)
        except child_process.TookTooLong:
            raise ScaffoldError(f"fetching {what} took longer than {seconds:.0f} seconds", hint=hint) from None
        except OSError:
            continue
        if done.returncode == 0:
            return done.stdout
        output = done.stderr + done.stdout
        if _NO_PIP not in output:
            break
    raise failure(what, output, hint)


def failure(what: str, output: str, hint: str) -> ScaffoldError:
    """Return the error for a failure of pip, from its output.

    The error says that the index lacks something only if the index answered so: pip prints the same last line if an
    index is down, denies access, or does not know the name.
    """
    if _NO_PIP in output:
        return ScaffoldError(f"cannot fetch {what}: this Python has no pip", hint=hint)
    listed = _KNOWN.search(output)
    known = [name.strip() for name in listed.group(1).split(",")] if listed else []
    known = [name for name in known if name and name != "none"]
    if known:
        near = ", ".join(nearest_versions(what.rpartition(" ")[2], known))
        return ScaffoldError(f"the package index has no {what}", hint=f"nearest are {near}")
    refused = [code for code in _MISSED.findall(output) if code not in ("", "404")]
    if is_unreachable(output):
        return ScaffoldError(f"cannot fetch {what}: the package index is down or cannot be reached", hint=hint)
    if refused:
        told = f"the package index answers with error {refused[0]}"
        return ScaffoldError(f"cannot fetch {what}: {told}", hint=f"see `pip config list`, or {hint}")
    untrusted, places = _UNTRUSTED.search(output), _PLACES.findall(output)
    if untrusted or (places and not any(map(int, places))):
        why = (
            f"pip does not ask {untrusted[1]}, which is not trusted"
            if untrusted
            else "pip is set to ask no package index"
        )
        return ScaffoldError(f"cannot fetch {what}: {why}", hint=f"see `pip config list`, or {hint}")
    if listed or "No matching distribution" in output:
        return ScaffoldError(
            f"the package index has no {what}", hint=f"nor any other release, see `pip config list`; {hint}"
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return ScaffoldError(f"cannot fetch {what}: {errors[-1] if errors else 'pip failed'}", hint=hint)


def is_unreachable(output: str) -> bool:
    """Whether an index did not answer, according to the output of ``pip -vv``."""
    answers = _MISSED.findall(output)
    return "" in answers or (not answers and any(sign in output for sign in _OFFLINE))


def nearest_versions(version: str, known: list[str]) -> list[str]:
    """Return the three versions of ``known`` closest to ``version`` by their numbers, nearest first."""

    def numbers(text: str) -> tuple[int, ...]:
        release = re.split(r"[a-z+]", text, maxsplit=1)[0]
        return tuple(int(part) for part in release.split(".") if part.isdigit())

    wanted = numbers(version)

    def distance(text: str) -> tuple[int, ...]:
        found: list[int] = []
        side = 0  # -1 if the first differing number is below, where a higher remainder is nearer, else 1
        for a, b in zip_longest(numbers(text), wanted, fillvalue=0):
            found.append(side * a if side else abs(a - b))
            side = side or (a > b) - (a < b)
        return tuple(found)

    return sorted(known, key=distance)[:3]


_INDEX_SECONDS = 120
_FIRST = re.compile(r"^Available versions: ([^,\s]+)", re.MULTILINE)


def newest_release(distribution: str) -> str:
    """Return the newest version of ``distribution`` that is not a pre-release.

    Raises:
        ScaffoldError: the index cannot be reached, or knows no such distribution.
    """
    hint = "name a version, a wheel or a folder instead"
    arguments = ["index", "versions", distribution]
    with step(f"asking for the newest {distribution}"):
        output = run_pip(f"{distribution} of any version", arguments, seconds=_INDEX_SECONDS, hint=hint)
    found = _FIRST.search(output)
    if found is None:
        raise ScaffoldError(f"pip lists no release of {distribution}", hint=hint)
    return found[1]
