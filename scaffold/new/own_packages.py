"""Reports a checkout's own packages for the same pipeline, and how the rendered one differs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.check.engine import check_targets
from scaffold.check.model.project import Project
from scaffold.check.model.shell import MODEL, lora_rank, truth
from scaffold.check.model.tree import DiskTree
from scaffold.check.targets import Target
from scaffold.errors import ScaffoldError

if TYPE_CHECKING:
    from scaffold.check.model.package import Package
    from scaffold.check.model.registration import Registration
    from scaffold.spec import IntegrationSpec
    from scaffold.target import ContractProfile

_WAYS = {
    "merge": "the trainer merges LoRA",
    "hook": "the rollout adapter takes LoRA",
    "fold": "the rollout adapter folds LoRA",
    "adapter": "the engine's manager gets LoRA",
}


def own_package_notes(root: Path, spec: IntegrationSpec, profile: ContractProfile) -> list[str]:
    """Return a line for each package whose rollout adapter is a subclass of the pipeline, or has the same architecture.

    Args:
        root: the checkout.
        spec: of the package that is rendered.
        profile: the checkout's capabilities.
    """
    project = Project(DiskTree(root))
    found = ((package, _registered(package, spec)) for package in project.packages if not package.facts.all)
    return [_note(package, entries, spec, profile) for package, entries in found if entries]


def released_note(spec: IntegrationSpec, profile: ContractProfile) -> list[str]:
    """Return a line that names the release's own packages for the pipeline, where no checkout is at hand to look at."""
    key = str(spec.value("upstream.registry_key"))
    names = profile.own_packages.get(key, ())
    if not names:
        return []
    several = "packages" if len(names) > 1 else "a package"
    way = (
        "noise levels and guidance are those of the rollout, not formulas of the package"
        if spec.ported
        else "training composes the model from the released weights"
    )
    return [
        f"verl-omni {profile.name} has {several} of its own for {key}: {', '.join(names)}; what is rendered does"
        f" otherwise: {way}; --verl-omni CHECKOUT compares both"
    ]


def _registered(package: Package, spec: IntegrationSpec) -> list[Registration]:
    module, name = str(spec.value("upstream.module")), str(spec.value("upstream.class"))
    top, architecture = f"{module.partition('.')[0]}.", spec.value("names.architecture")

    def inherits(entry: Registration) -> bool:
        names = entry.cls.external if entry.cls is not None else ()
        return any(base.startswith(top) and base.endswith(f".{name}") for base in names)

    return [entry for entry in package.registered("rollout") if entry.architecture == architecture or inherits(entry)]


def _note(package: Package, entries: list[Registration], spec: IntegrationSpec, profile: ContractProfile) -> str:
    names = dict.fromkeys(f"{entry.architecture}, {entry.algorithm}" for entry in entries)
    text = f"the checkout has a package of its own for {spec.value('upstream.class')}: {package.name}"
    text += f" ({'; '.join(names)})"
    others = "; ".join(_differences(package, entries, spec, profile))
    text += f"; what is rendered does otherwise: {others}" if others else ""
    codes = _found(package)
    return text + (f"; `check` finds {', '.join(codes)} in {package.name}" if codes else "")


def _differences(
    package: Package, entries: list[Registration], spec: IntegrationSpec, profile: ContractProfile
) -> Iterator[str]:
    scripts = package.launch_scripts
    if scripts and any(map(lora_rank, scripts)):
        merged = (script.override(f"{MODEL}lora.merge") for script in scripts)
        hooked = any(entry.cls is not None and entry.cls.method("map_lora_update_to_engine") for entry in entries)
        there = "merge" if any(truth(o.value) for o in merged if o is not None) else "hook" if hooked else "adapter"
        sync = "merge" if spec.value("lora.merge") else str(spec.value("lora.sync"))
        ours = _WAYS.get(sync) if spec.value("lora.rank") else None
        if ours != _WAYS[there]:
            yield f"{ours or 'it trains without LoRA'}, there {_WAYS[there]}"
    if {package.starts_v1(script) for script in scripts} == {not profile.use_v1}:
        yield f"it starts trainer {'v1' if profile.use_v1 else 'v0'}, there {'v0' if profile.use_v1 else 'v1'}"
    batched = [entry.cls.attribute("supports_request_batch") for entry in entries if entry.cls is not None]
    if any(a is not None and a.value is not None and a.file.value(a.value) is True for a in batched):
        yield "one request at a time, there several"


def _found(package: Package) -> list[str]:
    try:
        report = check_targets([Target(package.project, [package])])
    except ScaffoldError:
        return []
    return sorted({finding.rule for finding in report.findings if finding.severity == "error"})
