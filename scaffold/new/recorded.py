"""What an earlier run recorded of a package, and where."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.digest import sha256_hex
from scaffold.errors import ScaffoldError
from scaffold.spec.lock import LOCK_NAME, SPEC_NAME

if TYPE_CHECKING:
    from scaffold.spec import IntegrationSpec, StoredSpec


def package_path(spec: IntegrationSpec) -> str:
    """Return the folder of the rendered package, relative to the repository's root."""
    return f"verl_omni/pipelines/{spec.value('names.package')}"


def from_here(root: Path, path: str) -> str:
    """Return a path below a root as the next command takes it, relative where it lies below the working directory."""
    place = (root / path).absolute()
    return str(place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place)


def record_paths(spec: IntegrationSpec) -> tuple[str, str]:
    """Return where ``scaffold.toml`` and ``scaffold.lock.toml`` are, relative to the repository's root."""
    return f"{package_path(spec)}/{SPEC_NAME}", f"{package_path(spec)}/{LOCK_NAME}"


def recorded_spec(root: Path, spec: IntegrationSpec) -> StoredSpec | None:
    """Return the spec that an earlier run left in the checkout."""
    from scaffold.spec import read_spec

    try:
        return read_spec(root / record_paths(spec)[0], inside=root)
    except ScaffoldError:
        return None


def known_digests(root: Path, spec: IntegrationSpec) -> dict[str, str]:
    """Digests of the files as they were last rendered there; empty where nothing was."""
    recorded = recorded_spec(root, spec)
    if recorded is None:
        return {}
    texts = (None if recorded.edited else recorded.text, recorded.lock)
    mine = zip(record_paths(spec), texts, strict=True)
    own = {path: sha256_hex(text) for path, text in mine if text is not None}
    return {**recorded.spec.files, **own}
