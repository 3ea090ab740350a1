"""Fetches one wheel, without its dependencies, into the cache, and verifies it on each use.

Its SHA-256 is stored beside it, in the format of ``sha256sum --check``. A wheel with another digest is fetched again. A
wheel without a stored digest, put there by hand, is checked once by the checksums inside the archive.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import zipfile
from importlib import metadata
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.reading import open_file, open_regular, read_text
from scaffold.scratch import scratch_folder
from scaffold.terminal.progress import step
from scaffold.upstream.cache import cache_root
from scaffold.upstream.pip import run_pip

TIMEOUT_SECONDS = 600
_CHUNK = 1 << 20


def fetch_wheel(distribution: str, version: str) -> Path:
    """Return the path of ``distribution``'s wheel of ``version``, downloading it on first use.

    Raises:
        ScaffoldError: the index lacks the version, cannot be reached, or the cache cannot be written; the message names
            a damaged wheel in the cache.
    """
    folder = cache_root() / "wheels"
    stem = distribution.replace("-", "_")
    damaged: dict[Path, str] = {}
    for cached in sorted(folder.glob(f"{stem}-{version}-*.whl")):
        problem = problem_with(cached)
        if problem is None:
            return cached
        damaged[cached] = problem
    try:
        return _fetched(distribution, version, folder, again=bool(damaged))
    except ScaffoldError as error:
        if not damaged:
            raise
        file, problem = next(iter(damaged.items()))
        why = f"{file} {problem}, and it was not fetched again: {error.message}"
        raise ScaffoldError(why, hint="put a whole wheel there, or try again where the index can be reached") from None


def _fetched(distribution: str, version: str, folder: Path, *, again: bool) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = contextlib.ExitStack()
        staging = opened.enter_context(scratch_folder("fetch", folder))
    except OSError as error:
        raise ScaffoldError(
            f"cannot write the cache folder {folder}: {error.strerror}", hint="set OMNI_SCAFFOLD_CACHE"
        ) from None
    what = f"{distribution} {version}"
    try:
        with step(f"fetching {what}{' again: the cached wheel is damaged' if again else ''}"):
            arguments = ["download", "--no-deps", "--only-binary=:all:", "--no-python-version-warning"]
            arguments += ["--dest", str(staging), f"{distribution}=={version}"]
            hint = f"name a wheel or a folder instead, or put the wheel into {folder}"
            run_pip(what, arguments, seconds=TIMEOUT_SECONDS, hint=hint)
        wheels = sorted(staging.glob("*.whl"))
        if not wheels:
            raise ScaffoldError(f"pip fetched no wheel of {what}")
        target = folder / wheels[0].name
        # Another process may have been faster; both wheels are equal, and each rename is atomic.
        for place in (target, _digest_file(target)):
            if place.is_dir() and not place.is_symlink():
                place.rename(staging / f"damaged-{place.name}")  # a file cannot replace a folder
        _store_digest(target, _digest(wheels[0]))
        wheels[0].replace(target)
        return target
    except OSError as error:
        raise ScaffoldError(f"cannot write into {folder}: {error.strerror}", hint="set OMNI_SCAFFOLD_CACHE") from None
    finally:
        opened.close()


def problem_with(wheel: Path) -> str | None:
    """Return what is wrong with a cached wheel, or None."""
    try:
        digest = _digest(wheel)
        stored = stored_digest(wheel)
        if stored is not None:
            return None if digest == stored else "is damaged (its SHA-256 is not the one it was fetched with)"
        with open_regular(wheel) as (stream, _), zipfile.ZipFile(stream) as archive:
            broken = archive.testzip()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError) as error:
        return f"is not a readable wheel ({getattr(error, 'strerror', None) or error})"
    except Exception as error:
        # zlib and lzma raise error types of their own.
        return f"is damaged ({error})"
    if broken is not None:
        return f"is damaged (at {broken})"
    with contextlib.suppress(OSError):  # a shared cache may be read-only
        _store_digest(wheel, digest)
    return None


def _digest(wheel: Path) -> str:
    digest = hashlib.sha256()
    with open_regular(wheel) as (stream, _):
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _digest_file(wheel: Path) -> Path:
    return wheel.with_name(wheel.name + ".sha256")


def stored_digest(wheel: Path) -> str | None:
    """Return the stored SHA-256 of a wheel; None if there is none, empty if it cannot be read."""
    try:
        words = read_text(_digest_file(wheel), limit=1000, errors="replace").split()
    except (FileNotFoundError, PermissionError):
        return None
    except OSError:
        return ""
    return words[0] if words else ""


def _store_digest(wheel: Path, digest: str) -> None:
    # The digest gets the same permissions as the wheel, from the user's umask.
    temporary = wheel.with_name(f".digest-{secrets.token_hex(8)}")
    with temporary.open("x", encoding="utf-8") as file:
        file.write(f"{digest}  {wheel.name}\n")
    temporary.replace(_digest_file(wheel))


DIFFUSERS = "diffusers"


def installed_diffusers() -> str | None:
    """Version of the installed diffusers, or None."""
    try:
        return metadata.version(DIFFUSERS)
    except metadata.PackageNotFoundError:
        return None


def other_diffusers(version: str) -> Path:
    """Folder that holds ``diffusers/`` of ``version`` and nothing else, fetched and unzipped on first use.

    Raises:
        ScaffoldError: the release cannot be fetched, or the cache cannot be written.
    """
    folder = cache_root() / "unzipped" / f"{DIFFUSERS}-{version}"
    if folder.is_dir():
        return folder
    wheel = fetch_wheel(DIFFUSERS, version)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder("unzip", folder.parent) as staging:
            with open_file(wheel) as stream, zipfile.ZipFile(stream) as archive:
                archive.extractall(staging)
            try:
                staging.replace(folder)
            except OSError:  # another process may have been faster; both folders are the same
                if not folder.is_dir():
                    raise
    except (OSError, zipfile.BadZipFile) as error:
        raise ScaffoldError(f"{wheel.name} cannot be unzipped into {folder.parent}: {error}") from None
    return folder
