"""``scaffold.toml``: where it is in a package, and what an earlier run recorded in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.reading import read_text

if TYPE_CHECKING:
    from scaffold.spec import IntegrationSpec

SPEC_NAME = "scaffold.toml"


def package_path(spec: IntegrationSpec) -> str:
    """Return the folder of the rendered package, relative to the repository's root."""
    return f"verl_omni/pipelines/{spec.value('names.package')}"


def from_here(root: Path, path: str) -> str:
    """Return a path below a root as the next command takes it, relative where it lies below the working directory."""
    place = (root / path).absolute()
    return str(place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place)


def recorded_spec(root: Path, spec: IntegrationSpec) -> tuple[str, IntegrationSpec | None]:
    """Return text and content of the spec that an earlier run left in the checkout."""
    from scaffold.spec import IntegrationSpec

    path = root / package_path(spec) / SPEC_NAME
    try:
        text = read_text(path, inside=root)
        return text, IntegrationSpec.from_toml(text, str(path))
    except (OSError, UnicodeDecodeError, ScaffoldError):
        return "", None


def known_digests(root: Path, spec: IntegrationSpec) -> dict[str, str]:
    """Digests of the files as they were last rendered there; empty where nothing was."""
    import hashlib

    from scaffold.spec.seal import is_sealed

    path = f"{package_path(spec)}/{SPEC_NAME}"
    text, recorded = recorded_spec(root, spec)
    if recorded is None:
        return {}
    mine = {path: hashlib.sha256(text.encode()).hexdigest()} if is_sealed(text) else {}
    return {**recorded.files, **mine}
