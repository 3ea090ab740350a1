"""Fetches one wheel, without its dependencies, into the cache."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.progress import step
from scaffold.upstream.cache import cache_root

TIMEOUT_SECONDS = 600
_OFFLINE = (
    "NewConnectionError",
    "Temporary failure in name resolution",
    "Connection refused",
    "timed out",
    "ProxyError",
)
_KNOWN = re.compile(r"from versions: ([^)]*)\)")


def fetch_wheel(distribution: str, version: str) -> Path:
    """Return the path of ``distribution``'s wheel of ``version``, downloading it on first use.

    Raises:
        ScaffoldError: the index lacks the version, cannot be reached, or the cache cannot be written.
    """
    folder = cache_root() / "wheels"
    stem = distribution.replace("-", "_")
    cached = folder / f"{stem}-{version}-py3-none-any.whl"
    if cached.is_file() and zipfile.is_zipfile(cached):
        return cached
    for other in sorted(folder.glob(f"{stem}-{version}-*.whl")):
        if zipfile.is_zipfile(other):
            return other
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
    except OSError as error:
        raise ScaffoldError(
            f"cannot write the cache folder {folder}: {error.strerror}", hint="set OMNI_SCAFFOLD_CACHE"
        ) from None
    try:
        with step(f"fetching {distribution} {version}"):
            _download(distribution, version, staging)
        wheels = sorted(staging.glob("*.whl"))
        if not wheels:
            raise ScaffoldError(f"pip fetched no wheel of {distribution} {version}")
        target = folder / wheels[0].name
        # Another process may have been faster: both files are the same, the rename is atomic.
        wheels[0].replace(target)
        return target
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _download(distribution: str, version: str, folder: Path) -> None:
    arguments = [
        "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input",
        "--no-python-version-warning", "--ignore-requires-python", "--dest", str(folder), f"{distribution}=={version}",
    ]  # fmt: skip
    output = ""
    for command in pip_commands():
        with contextlib.suppress(OSError):
            try:
                done = subprocess.run(
                    [*command, *arguments], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
                )
            except subprocess.TimeoutExpired:
                raise ScaffoldError(
                    f"fetching {distribution} {version} took longer than {TIMEOUT_SECONDS} seconds",
                    hint="download the wheel yourself and name its path",
                ) from None
            if done.returncode == 0:
                return
            output = done.stderr + done.stdout
            if "No module named pip" not in output:
                break
    raise failure(distribution, version, output)


def pip_commands() -> list[list[str]]:
    """Return the ways to start pip, the one of this Python first."""
    commands = [[sys.executable, "-m", "pip"]]
    on_path = shutil.which("pip")
    if on_path:
        commands.append([on_path])
    return commands


def failure(distribution: str, version: str, output: str) -> ScaffoldError:
    """Return the error that says why pip failed, from what it printed."""
    if not output or "No module named pip" in output:
        return ScaffoldError(
            f"cannot fetch {distribution} {version}: this Python has no pip", hint="name a wheel or a folder instead"
        )
    if any(sign in output for sign in _OFFLINE):
        return ScaffoldError(
            f"cannot fetch {distribution} {version}: the package index cannot be reached",
            hint="name a wheel or a folder holding vllm_omni/ instead",
        )
    known = _KNOWN.search(output)
    if known or "No matching distribution" in output:
        names = [n.strip() for n in known.group(1).split(",")] if known else []
        near = nearest_versions(version, [n for n in names if n and n != "none"])
        hint = "nearest are " + ", ".join(near) if near else None
        return ScaffoldError(f"the package index has no {distribution} {version}", hint=hint)
    last = [line.strip() for line in output.splitlines() if line.strip()]
    return ScaffoldError(f"cannot fetch {distribution} {version}: {last[-1] if last else 'pip failed'}")


def nearest_versions(version: str, known: list[str], count: int = 3) -> list[str]:
    """Return the ``count`` versions of ``known`` closest to ``version`` by their numbers, nearest first."""

    def numbers(text: str) -> tuple[int, ...]:
        release = re.split(r"[a-z+]", text, maxsplit=1)[0]
        return tuple(int(part) for part in release.split(".") if part.isdecimal() and len(part) < 10)

    wanted = numbers(version)

    width = max([len(wanted), *(len(numbers(text)) for text in known)])

    def padded(parts: tuple[int, ...]) -> tuple[int, ...]:
        return parts + (0,) * (width - len(parts))

    def distance(text: str) -> tuple[int, ...]:
        return tuple(abs(a - b) for a, b in zip(padded(numbers(text)), padded(wanted), strict=True))

    return sorted(known, key=distance)[:count]
