"""Renders a package: its files, and the spec with their digests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.files.digest import sha256_hex
from scaffold.grade import is_ported
from scaffold.grade.rendering import ported_text, validate_ported
from scaffold.new.recorded import record_paths, recorded_spec
from scaffold.plan.folder import Folder
from scaffold.remap import KeyMap
from scaffold.render import RenderedFile, render
from scaffold.spec.validate import validate

if TYPE_CHECKING:
    from scaffold.port import Port
    from scaffold.render import RenderedFile
    from scaffold.spec import IntegrationSpec


def render_package(
    spec: IntegrationSpec,
    notes: list[str],
    checkout: Path | None = None,
    port: Port | None = None,
) -> tuple[dict[str, RenderedFile], IntegrationSpec]:
    """Render every file, and the two files of the spec with the digests of the others.

    Args:
        spec: what to render.
        notes: receives one line for each check that could not run on this machine.
        checkout: where the files will be; the spec then records the folders created for them.
        port: the ported denoiser of a partial package; by default it is ported again from the recorded version.

    Raises:
        ScaffoldError: the spec cannot be rendered.
    """
    spec = spec.as_written()
    files = _render_written(spec, notes, port)
    digests = {path: sha256_hex(file.link_to or file.content) for path, file in files.items()}
    paths = record_paths(spec)
    folders = _made_folders(checkout, [*files, *paths], spec) if checkout is not None else ()
    spec = replace(spec, files=digests, folders=folders)
    for path, text in zip(paths, spec.to_files(), strict=True):
        files[path] = RenderedFile(text, template=PurePosixPath(path).name)
    return dict(sorted(files.items())), spec


def render_files(spec: IntegrationSpec, notes: list[str], port: Port | None = None) -> dict[str, RenderedFile]:
    """Render all files of `render_package` except those of the spec."""
    return _render_written(spec.as_written(), notes, port)


def _render_written(spec: IntegrationSpec, notes: list[str], port: Port | None = None) -> dict[str, RenderedFile]:
    context = spec.context()
    if is_ported(spec):
        validate_ported(spec)
        context["ported"] = {"source": ported_text(spec, port)}
    else:
        validate(spec)
        rules = spec.value("checkpoint.rules")
        if not isinstance(rules, list):
            raise ScaffoldError(f"checkpoint.rules is {rules!r}", hint="it must be the list of the key remap")
        KeyMap.from_data(rules)
    return render(context, notes=notes)


def _made_folders(root: Path, paths: list[str], spec: IntegrationSpec) -> tuple[str, ...]:
    """Return the folders that the files need and the checkout lacks, or that an earlier run made for them."""
    recorded = recorded_spec(root, spec)
    needed = {parent.as_posix() for path in paths for parent in PurePosixPath(path).parents}
    with Folder(root) as folder:
        missing = {parent for path in paths for parent in folder.missing_parents(path)}
    return tuple(sorted(missing | (set(recorded.spec.folders) & needed if recorded else set())))
