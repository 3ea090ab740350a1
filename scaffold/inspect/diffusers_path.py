"""Whether diffusers loads the denoiser: its release exports the pipeline, or the class a component folder fills."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from scaffold.errors import ScaffoldError
from scaffold.files.reading import read_text
from scaffold.inspect.facts import Confidence, Evidence
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import class_name, options
from scaffold.inspect.weight_sources import component_sources
from scaffold.source.classes import ClassInfo
from scaffold.source.syntax import walk_tree
from scaffold.source.values import External
from scaffold.upstream.registry import REGISTRY_FILE

_EXPORTS = Path(__file__).with_name("diffusers_exports.json")
_LOADER = "from_pretrained"
_PIPELINE_CLASS = re.compile(r"diffusers\.(?:\w+\.)*\w*Pipeline")
_PIN = re.compile(r"^Requires-Dist: *diffusers *== *([0-9][0-9.]*)", re.IGNORECASE)


class Loaded(NamedTuple):
    """Diffusers loads the denoiser: the reason, its places in the source, and the confidence."""

    reason: str
    places: list[Evidence | None]
    confidence: Confidence


class _Release(NamedTuple):
    models: frozenset[str]
    pipelines: frozenset[str]


@cache
def _releases() -> dict[str, _Release]:
    """What each release exports; the file lists what a release adds to the one before."""
    found: dict[str, _Release] = {}
    models: frozenset[str] = frozenset()
    pipelines: frozenset[str] = frozenset()
    for version, added in json.loads(read_text(_EXPORTS)).items():
        models, pipelines = models | frozenset(added["models"]), pipelines | frozenset(added["pipelines"])
        found[version] = _Release(models, pipelines)
    return found


def loads_through_diffusers(program: Program) -> Loaded | None:
    """Why diffusers loads the pipeline's denoiser; None where it does not.

    The engine picks a pipeline by ``_class_name`` of the checkpoint's ``model_index.json``: a registry key that is
    a pipeline of diffusers means a checkpoint in its format. Otherwise the class of a component that is filled from
    a folder of its own must be a model of diffusers under the same name.
    """
    pin, pinned_at = _pin(program)
    releases = _releases()
    chosen = {v: r for v, r in releases.items() if v == pin} or releases
    for version, release in reversed(chosen.items()):
        found = _exported(program, release)
        if found is None:
            continue
        what, places = found
        everywhere = pin in releases or _exported(program, next(iter(releases.values()))) is not None
        by = f"diffusers {version}{', which this version pins,' if version == pin else _not_looked_at(pin)}"
        return Loaded(f"{by} has {what}", [*places, pinned_at], "certain" if everywhere else "likely")
    return None


def lacking(program: Program) -> tuple[str, Evidence | None]:
    """Which release of diffusers was looked at for a denoiser that diffusers does not load, and where it is pinned."""
    pin, pinned_at = _pin(program)
    newest = next(reversed(_releases()))
    if pin in _releases():
        return f"diffusers {pin}, which this version pins, has neither", pinned_at
    return f"diffusers up to {newest}{_not_looked_at(pin)} has neither", pinned_at


def _not_looked_at(pin: str | None) -> str:
    return "" if pin is None else f" (this version pins {pin}, which was not looked at)"


def later_release(program: Program) -> tuple[str, Evidence | None] | None:
    """Return which release of diffusers may load a denoiser that the pinned one does not.

    Either a later release has it, or any release has a name that differs only in case or by "Modular", which may or may
    not be the same model.
    """
    pin, pinned_at = _pin(program)
    releases = _releases()
    for version, release in releases.items() if pin in releases else ():
        found = _exported(program, release)
        if found is not None:
            return f"diffusers {version} has {found[0]}, but this version pins {pin}", pinned_at
    known = list(releases)
    for version in known[known.index(pin) :] if pin in releases else known[-1:]:
        alike = _alike(program, releases[version])
        if alike is not None:
            name, other = alike
            told = f"diffusers {version} has {other}, which may be {name} under another spelling"
            return f"{told}{'' if pin in (None, version) else f', but this version pins {pin}'}", pinned_at
    return None


def _alike(program: Program, release: _Release) -> tuple[str, str] | None:
    """A name of the pipeline or of a class that is filled, and a name of the release's that is spelled otherwise."""
    components = [class_name(c) for _, _, held in component_sources(program) for c in options(held)]
    pipelines = [program.cls.name, *program.target.registry_keys]
    for names, known in ((components, release.models), (pipelines, release.pipelines)):
        folded = {_folded(name): name for name in sorted(known)}
        for name in names:
            if name is not None and _folded(name) in folded:
                return name, folded[_folded(name)]
    return None


def _folded(name: str) -> str:
    return name.replace("Modular", "").lower()


def _exported(program: Program, release: _Release) -> tuple[str, list[Evidence | None]] | None:
    for source, folder, held in component_sources(program):
        for component in options(held):
            name = class_name(component)
            if name in release.models:
                where = f"the folder {folder}" if folder else "a folder of its own"
                return f"the model {name}, whose weights come from {where}", [source.at, component.at]
    for key in program.target.registry_keys:
        if key in release.pipelines:
            return f"the pipeline {key}, under which this class is registered", [_registered(program, key)]
    return None


def _registered(program: Program, key: str) -> Evidence | None:
    for number, line in enumerate(program.source.read(REGISTRY_FILE).splitlines(), 1):
        if line.lstrip().startswith((f'"{key}"', f"'{key}'")):
            return Evidence(REGISTRY_FILE, number)
    return None


def handed_over(program: Program) -> Loaded | None:
    """A class that makes a pipeline of diffusers in one of its methods and runs it as a whole."""
    for owner in program.cls.mro:
        if _LOADER not in program.source.read(owner.module.file):
            continue
        for method in owner.methods.values():
            nodes = list(walk_tree(method))
            made = next((n for n in nodes if isinstance(n, ast.Attribute) and n.attr == _LOADER), None)
            names = [n for n in nodes if isinstance(n, ast.Name)] if made is not None else []
            if made is not None and any(_is_pipeline_class(program, owner, name) for name in names):
                place = Evidence(owner.module.file, made.lineno)
                return Loaded("diffusers loads and runs the pipeline as a whole", [place], "certain")
    return None


def _is_pipeline_class(program: Program, owner: ClassInfo, name: ast.Name) -> bool:
    value = program.scopes.lookup(owner.module, name.id)
    return isinstance(value, External) and _PIPELINE_CLASS.fullmatch(value.path) is not None


def _pin(program: Program) -> tuple[str | None, Evidence | None]:
    """The release of diffusers that this version of vllm-omni asks for, where its metadata is at hand."""
    version = program.source.version
    path = f"vllm_omni-{version}.dist-info/METADATA"
    try:
        if version is None or not program.source.exists(path):
            return None, None
        for number, line in enumerate(program.source.read(path).splitlines(), 1):
            found = _PIN.match(line)
            if found:
                return found.group(1), Evidence(path, number)
    except ScaffoldError:
        pass
    return None, None
