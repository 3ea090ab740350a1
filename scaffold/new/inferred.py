"""Infers the key map of a pipeline as `new` would, and proves it from names and shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaffold.checkpoint import read_checkpoint
from scaffold.checkpoint.layout import WEIGHTS
from scaffold.errors import ScaffoldError
from scaffold.inspect import inspect_pipeline
from scaffold.new.refusal import refuse
from scaffold.remap import SourceRules, infer_key_map, prove
from scaffold.render import derive_names
from scaffold.spec import SpecRequest, build_spec
from scaffold.spec.architecture import parameters
from scaffold.spec.preset import find_preset
from scaffold.target import default_profile
from scaffold.upstream import locate

if TYPE_CHECKING:
    from scaffold.remap import Proof


@dataclass(frozen=True)
class Inferred:
    """The proof, its title, and notes for the reader."""

    title: str
    proof: Proof
    notes: tuple[str, ...]


def infer(pipeline: str, checkpoint: str | None, vllm_omni: str | None) -> Inferred:
    """Infer the map of a composed package.

    Args:
        pipeline: a registry key, a model folder or ``module:Class``.
        checkpoint: folder, file or Hub repository; by default the packaged manifest of the pipeline's preset.
        vllm_omni: a version, a wheel or a folder.

    Raises:
        ScaffoldError: no such pipeline or checkpoint, or no map follows from names and shapes; a refused pipeline (3).
    """
    headers = read_checkpoint(checkpoint) if checkpoint is not None else None
    report = inspect_pipeline(locate(vllm_omni), pipeline, headers)
    refuse(report)
    preset, notes = find_preset(pipeline, report.facts["detail.pipeline.registry_key"].value), []
    given, headers = headers, headers or preset.headers()
    if headers is None:
        raise ScaffoldError(f"no checkpoint is known for {pipeline}", hint="name one with --checkpoint")
    if given is None:
        notes.append(f"no --checkpoint: names and shapes are those of the packaged manifest {preset.manifest}")
    notes += [f"{name} is not read: {why}" for name, why in headers.skipped.items() if name.endswith(WEIGHTS)]
    name = pipeline if pipeline.isidentifier() and pipeline.islower() else "model"
    request = SpecRequest(report, derive_names(name), default_profile(), given)
    sections = build_spec(request, until="architecture").sections
    shapes = parameters(sections["architecture"], sections["latents"])
    rules = SourceRules.of(report)
    reasons = preset.value("checkpoint", "drop_reasons") or {}
    key_map = infer_key_map(headers, shapes, source=rules, drop_reasons=reasons, partial=True)
    files = sorted({headers.tensors[key].file for key in key_map.apply_all(headers).targets})
    if files and len(files) < len(headers.files):
        headers = headers.select(files)
        notes.append(f"read {', '.join(files)} only: training takes nothing from the other files")
        key_map = infer_key_map(headers, shapes, source=rules, drop_reasons=reasons, partial=True)
    notes += [
        f"upstream's rule {rule.source!r} ({rule.place}) matches no key" for rule in rules.unused(headers.tensors)
    ]
    proof = prove(key_map, headers, shapes, stacked=rules.stacked)
    title = f"{report.upstream.pipeline} of vllm-omni {report.upstream.label}"
    return Inferred(title, proof, tuple(notes))
