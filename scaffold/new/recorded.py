"""What an earlier run recorded of a package, and where."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.files.digest import sha256_hex
from scaffold.plan.line_ends import plain
from scaffold.plan.output import states
from scaffold.render.runtime import is_runtime, runtime_files
from scaffold.spec import read_spec
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
    try:
        return read_spec(root / record_paths(spec)[0], inside=root)
    except ScaffoldError:
        return None


def known_digests(root: Path, spec: IntegrationSpec) -> dict[str, str]:
    """Digests of the files as they were last rendered there; of the runtime's alone where the package was not."""
    shared = recorded_runtime(root, runtime_files())
    recorded = recorded_spec(root, spec)
    if recorded is None:
        return shared
    texts = (None if recorded.edited else recorded.text, recorded.lock)
    mine = zip(record_paths(spec), texts, strict=True)
    own = {path: sha256_hex(text) for path, text in mine if text is not None}
    return {**recorded.spec.files, **shared, **own}


def recorded_runtime(root: Path, paths: Collection[str]) -> dict[str, str]:
    """Digests of those files of the shared runtime that are as some package of the tree was rendered with them."""
    if not paths:
        return {}
    known = [files for _, files in packages_with_runtime(root)]
    found = {}
    for path, state in states(root, paths).items():
        content = plain(state)
        digest = content.content_sha256 if content is not None else None
        if digest is not None and any(files.get(path) == digest for files in known):
            found[path] = digest
    return found


def packages_with_runtime(root: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield each package of a tree that records files of the shared runtime: its name, and path to digest."""
    for path in sorted((root / "verl_omni" / "pipelines").glob(f"*/{SPEC_NAME}")):
        try:
            files = read_spec(path, inside=root).spec.files
        except ScaffoldError:
            continue
        shared = {name: digest for name, digest in files.items() if is_runtime(name)}
        if shared:
            yield path.parent.name, shared
