"""Reads what an earlier run recorded about a package."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.files.digest import sha256_hex
from scaffold.files.layout import layout_of
from scaffold.files.reading import read_text
from scaffold.plan.change import plain
from scaffold.plan.output import states
from scaffold.render.runtime import FOLDER, is_runtime, local_version_of, runtime_files
from scaffold.spec import read_spec
from scaffold.spec.derived import comparable, digest
from scaffold.spec.lock import LOCK_NAME, SPEC_NAME

if TYPE_CHECKING:
    from scaffold.new.request import NewRequest
    from scaffold.plan import Plan
    from scaffold.render import RenderedFile
    from scaffold.spec import IntegrationSpec, StoredSpec


# The tool and the target say these themselves.
_NOBODYS = ("tool.", "target.", "upstream.version", "upstream.checkout_pin")


def package_path(spec: IntegrationSpec) -> str:
    """Return the folder of the rendered package, relative to the repository's root."""
    return layout_of(spec.sections.get("target")).package_folder(str(spec.value("names.package")))


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
    """Return the digests of the files as last rendered there; only the runtime's if the package is new."""
    shared = recorded_runtime(root, runtime_files())
    recorded = recorded_spec(root, spec)
    if recorded is None:
        return shared
    texts = (None if recorded.edited else recorded.text, recorded.lock)
    mine = zip(record_paths(spec), texts, strict=True)
    own = {path: sha256_hex(text) for path, text in mine if text is not None}
    return {**recorded.spec.files, **shared, **own}


def recorded_runtime(root: Path, paths: Collection[str]) -> dict[str, str]:
    """Return the digests of shared runtime files that are as some package of the tree recorded them."""
    if not paths:
        return {}
    known = [files for _, files in packages_with_runtime(root)]
    found = {}
    for path, state in states(root, paths).items():
        content = plain(state)
        found_digest = content.content_sha256 if content is not None else None
        if found_digest is not None and any(files.get(path) == found_digest for files in known):
            found[path] = found_digest
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


def without_local(files: Mapping[str, RenderedFile], root: Path, notes: list[str]) -> dict[str, RenderedFile]:
    """Return the files without those of the runtime where the tree has a local version of it, which stays."""
    local = local_version_of(root / FOLDER)
    if local is None:
        return dict(files)
    mine = [path for path in files if is_runtime(path) and (root / path).is_file()]
    notes += [f"{FOLDER} is the local version {local}: its {len(mine)} files stay as they are"] if mine else []
    return {path: file for path, file in files.items() if path not in mine}


def used_by_others(root: Path, package: str) -> frozenset[str]:
    """Return the files of the runtime beside a package that other packages of its tree reach."""
    return frozenset(path for name, files in packages_with_runtime(root) if name != package for path in files)


def left_behind(root: Path, package: str, files: Collection[str]) -> Iterator[str]:
    """Yield a note on each package beside this one that today's runtime, where it is written, refuses."""
    for path in sorted((root / FOLDER).parent.glob("*/common.py")) if any(map(is_runtime, files)) else ():
        name = path.parent.name
        try:
            text = read_text(path, inside=root, errors="replace")
        except OSError:
            continue
        if name != package and re.search(r"\bguide_of\b", text):
            command = f"omni-scaffold update {from_here(root, f'verl_omni/pipelines/{name}')}"
            yield f"{name} has formulas, which the runtime that is written here does not read: `{command}` converts it"


def keep_own(plan: Plan, spec: IntegrationSpec, request: NewRequest) -> Plan:
    """Return the plan with a conflict where the package that is there is of another version, or has values set by hand.

    Whatever is in conflict in a package of the tool's own, the hint is the ``update`` that does what is wanted.
    """
    stored = recorded_spec(plan.root, spec)
    if stored is None:
        return plan
    recorded, (path, _) = stored.spec, record_paths(spec)
    there, wanted = recorded.value("upstream.version"), spec.value("upstream.version")
    names = hand_set(recorded, spec) if request.spec is None else ()
    reasons = [f"made for vllm-omni {there}, not {wanted}"] if there != wanted else []
    reasons += [f"set by hand: {', '.join(names)}"] if names else []
    if reasons:
        conflict = "; ".join(reasons)
        changes = tuple(
            replace(change, conflict=conflict) if change.path == path else change for change in plan.changes
        )
        plan = replace(plan, changes=changes)
    command = f"omni-scaffold update {from_here(plan.root, package_path(spec))}"
    if request.spec is not None:
        own = Path(request.spec).resolve() == (plan.root / path).resolve()
        first = "" if own else f"set its values in {path} and "
        advice = f"{first}`{command} --spec` renders them, with your edits of other files kept"
    elif there != wanted:
        advice = f"`{command} --vllm-omni {request.vllm_omni or wanted}` carries the package there and keeps your edits"
    elif names:
        advice = f"`{command} --spec` renders the values that you set, `{command}` renders anew and keeps them"
    else:
        advice = f"`{command}` renders anew and keeps your edits"
    return replace(
        plan,
        conflict_message="`new` wrote this package before, and it is another one now",
        conflict_hint=f"{advice}; --force overwrites them",
    )


def hand_set(recorded: IntegrationSpec, new: IntegrationSpec) -> tuple[str, ...]:
    """Return ``section.key`` of each recorded value that is not the tool's own and is another one in ``new``."""
    if not recorded.derived:
        return ()  # an older spec does not tell
    found = []
    for section, values in recorded.sections.items():
        for key, value in values.items():
            name = f"{section}.{key}"
            mine = value is not None and digest(value) != recorded.derived.get(name)
            other = new.sections.get(section, {}).get(key)
            if mine and not name.startswith(_NOBODYS) and comparable(value) != comparable(other):
                found.append(name)
    return tuple(found)


def dated_as_there(spec: IntegrationSpec, root: Path) -> IntegrationSpec:
    """Keep the date of a package that is there: a second run on another day changes nothing."""
    name, stored = "last_updated", recorded_spec(root, spec)
    there = stored.spec if stored is not None else None
    date = there.value(f"docs.{name}") if there is not None else None
    if there is None or date is None:
        return spec
    sections = {**spec.sections, "docs": {**spec.sections["docs"], name: date}}
    derived = {**spec.derived, f"docs.{name}": there.derived.get(f"docs.{name}", spec.derived[f"docs.{name}"])}
    provenance = {**spec.provenance, f"docs.{name}": there.provenance.get(f"docs.{name}", "")}
    return replace(spec, sections=sections, derived=derived, provenance=provenance)
