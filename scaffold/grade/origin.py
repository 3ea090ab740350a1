"""Identifies the code a port was made from, so that other code under the same version is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.upstream.locate import locate_version

if TYPE_CHECKING:
    from scaffold.spec import IntegrationSpec
    from scaffold.upstream import UpstreamSource


def digest(source: UpstreamSource, files: Iterable[str]) -> str:
    """Return the SHA-256 of the named files of a version.

    Raises:
        ScaffoldError: one of them is not there.
    """
    found = hashlib.sha256()
    for path in sorted(set(files)):
        text = source.read(path).encode()
        found.update(f"{path} {len(text)}\n".encode() + text)
    return found.hexdigest()


def origin_of(spec: IntegrationSpec) -> UpstreamSource:
    """Return the version of vllm-omni that a ported package was made from.

    Raises:
        ScaffoldError: it is not available, or the code under its number has changed since.
    """
    version: Any = spec.value("upstream.version")
    if not isinstance(version, str) or version.startswith("from "):
        raise ScaffoldError(
            f"the denoiser was ported {version or 'from an unknown version'}, a version that cannot be fetched",
            hint="give --vllm-omni VERSION|WHEEL|DIR instead of --spec",
        )
    source = locate_version(version)
    refuse_other_code(spec, source, "--vllm-omni, and without --spec")
    return source


def refuse_other_code(spec: IntegrationSpec, source: UpstreamSource, flag: str) -> None:
    """Raise `ScaffoldError` if a ported package was made from other code than the given version.

    Args:
        spec: the package's; one that is not ported fits every source.
        source: the version it was supposedly made from.
        flag: the option with which the user names the right one.
    """
    recorded = spec.value("port.source_digest")
    files = [str(path) for path in spec.value("port.derived_from") or []]
    if recorded is not None and recorded != _digest_of(source, files):
        raise ScaffoldError(
            f"the denoiser was ported from other code than that of vllm-omni {source.label}",
            hint=f"name the wheel or folder that it was made from with {flag}",
        )


def _digest_of(source: UpstreamSource, files: list[str]) -> str | None:
    try:
        return digest(source, files)
    except ScaffoldError:
        return None
