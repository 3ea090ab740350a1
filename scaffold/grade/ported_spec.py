"""The spec of a package with a ported denoiser: sections filled from the facts alone, and what is left to write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from scaffold.checkpoint import CheckpointHeaders
from scaffold.files.reading import read_text
from scaffold.files.resources import presets_root
from scaffold.grade import COMPLETE, PARTIAL, UNPROVEN, launch
from scaffold.grade.diffusers_spec import FORM, PROJECTIONS, recording_of
from scaffold.grade.established import Established
from scaffold.grade.layout import layouts
from scaffold.grade.loading import Loading, find_loading
from scaffold.grade.missing import Missing, find_missing
from scaffold.grade.needs import find_needs
from scaffold.grade.origin import digest
from scaffold.grade.proof import RUN, agrees, batches_of, is_proven, not_run
from scaffold.grade.recording import find_recording
from scaffold.port import Port
from scaffold.port.result import IMPORTED
from scaffold.spec.build import SpecBuilder, SpecRequest, sources_of
from scaffold.spec.model import IntegrationSpec
from scaffold.spec.sections.package import fill_docs, fill_names, fill_target, fill_tool
from scaffold.spec.sections.request import fill_prompt, fill_tokens
from scaffold.spec.sections.sampling import fill_cfg, fill_schedule
from scaffold.spec.sections.upstream import fill_upstream
from scaffold.upstream import UpstreamSource

# The sections known without a checkpoint and without an architecture the blocks can compose.
SECTIONS = (
    fill_tool,
    fill_target,
    fill_upstream,
    fill_tokens,
    fill_schedule,
    fill_cfg,
    fill_prompt,
    fill_names,
)


def build_ported_spec(
    request: SpecRequest,
    port: Port | None,
    denoiser: tuple[str, str] | None,
    reason: str,
    source: UpstreamSource,
    loaded: tuple[str, str, str] | None = None,
) -> IntegrationSpec:
    """Return the spec of a package with a ported denoiser: the established values, and what a person must write.

    A missing value is not an error: `find_missing` and `find_needs` list it with its place.

    Args:
        request: report, names and contract profile.
        port: the ported denoiser; None if its class is unknown.
        denoiser: module and class it was ported from.
        reason: why the templates could not compose the package.
        source: the version of vllm-omni.
        loaded: module, class and attribute of the engine's denoiser, where diffusers loads that of training.

    Raises:
        PresetError: a team preset is invalid.
    """
    facts = Established(request.report, port)
    if loaded is None:
        recording, loading = find_recording(facts, source), find_loading(facts, source)
    else:
        recording, loading = recording_of(facts, source), Loading(loaded[2], established=True)
    headers = request.headers or CheckpointHeaders("no checkpoint", (), ())
    origin = "checkpoint headers" if request.headers else headers.source
    builder = SpecBuilder(sources_of(request, headers, origin, headers.configs))
    for fill in SECTIONS:
        builder.fill_with(fill)
    sections = builder.sections
    builder.fill("media", partial(launch.media, facts=facts))
    builder.fill("deploy", partial(launch.deploy, facts=facts, source=source))
    layout = None if request.headers else layouts().get(str(request.report.value("detail.pipeline.registry_key")))
    weights = sum(tensor.nbytes for tensor in layout.headers().tensors.values()) if layout is not None else None
    size = layout.size if layout is not None else None
    builder.fill("recipe", partial(launch.recipe, facts=facts, weights=weights, size=size))
    builder.fill("lora", partial(launch.lora, port=port, reached=loading.located))
    builder.fill_with(fill_docs)
    missing = find_missing(facts, request.names.model, recording, loading) if loaded is None else []
    missing += find_needs(facts, request.names.model, sections, source)
    if not request.profile.lora_hook:  # without the hook the package refuses LoRA
        missing = [entry for entry in missing if entry.key != "lora_sync"]
    ported = _port(port, denoiser, source)
    if loaded is not None:
        ported |= {"form": FORM, "module": loaded[0], "class": loaded[1]}
        sections["lora"] |= {"targets": request.preset.value("lora", "targets") or list(PROJECTIONS)}
    if port is not None and port.own:
        known = {name: facts.value(f"detail.model.{name}") for name in ("output", "first", "tokenizer")}
        ported |= {"own": True, **known}
    sections["grade"] = _grade(missing, reason, request, ported, source)
    if sections["grade"]["value"] == COMPLETE:
        ported |= batches_of(request)
    sections["port"] = ported
    sections["guidance"] = _guidance(facts, request.profile.sent, request.preset.value("cfg", "defaults") or {})
    if loaded is not None:  # no formula is rendered: what no request can set is the pipeline's own
        asked = sections["upstream"].get("guidance") or []
        settings = {name: value for name, value in sections["guidance"]["defaults"].items() if name in asked}
        sections["guidance"] |= {"defaults": settings}
    read = sections["schedule"]
    sections["schedule"] = {key: read.get(key) for key in ("steps", "shift", "direction")}
    if "solver" in read:
        sections["schedule"]["solver"] = read["solver"]
    sections["checkpoint"] = _checkpoint(facts)
    if weights is not None:
        sections["checkpoint"]["bytes"] = weights
    if layout is not None and sections["names"].get("repository") is None:
        sections["names"]["repository"] = layout.repository
        builder.provenance["names.repository"] = "layout of the released checkpoint"
    if layout is not None and layout.tokenizer is not None:
        sections["names"]["tokenizer"] = layout.tokenizer
        builder.provenance["names.tokenizer"] = "layout of the released checkpoint"
    sections["loading"] = loading.section()
    sections["inputs"] = {**_inputs(facts), "recorded": recording.calls}
    if loaded is not None:
        declared = ("left_out", "fixed", "renamed", "alone", "clears", "sample_dims")
        told = {name: request.preset.value("inputs", name) for name in declared}
        sections["inputs"] |= {name: value for name, value in told.items() if value}
    sections["recording"] = recording.section()
    for name in ("media", "deploy", "lora"):
        sections[name] = sections.pop(name)  # placed later in the file, after the sections that describe the package
    if (recorded := _recorded_checkpoint(facts, request.report.task)) is not None:
        sections["tiny"] = recorded
    else:
        sections["target"]["smoke_runner"] = None  # its smoke test asks for a checkpoint, which no CI has
    sections["cfg"].pop("defaults", None)  # requests carry the values of [guidance]
    for name in ("config_class", "layer_class"):
        del sections["names"][name]
    sections["verify"] = dict(request.preset.sections.get("verify", {}))
    builder.sections = {name: values for name, values in sections.items() if values}
    return builder.spec()


def _recorded_checkpoint(facts: Established, task: str | None) -> dict[str, Any] | None:
    """Return ``[tiny]`` of a pipeline with a record of a tiny checkpoint, which its smoke test then builds."""
    key = str(facts.value("detail.pipeline.registry_key"))
    path = presets_root() / "tiny" / f"{key}.json"
    if task is not None or not path.is_file():
        return None
    record = json.loads(read_text(path))
    return {"recorded": key, "height": record["height"], "width": record["width"]}


def _grade(
    missing: list[Missing], reason: str, request: SpecRequest, port: dict[str, Any], source: UpstreamSource
) -> dict[str, Any]:
    """Complete if nothing is left to write and tests have run what `new` renders, unproven if they have not.

    What only VeRL-Omni can support is not counted as left to write. Without a port, the reason is why the templates
    could not compose the denoiser.
    """
    needs = list(_needs(missing, request))
    needed: dict[str, Any] = {"needs": needs} if needs else {}
    theirs = [entry for entry in missing if entry.theirs and entry.limit in request.profile.limits]
    if theirs:
        needed["refuses"] = _not_carried(theirs, request)
    left = [entry for entry in missing if entry not in theirs]
    if left:
        entries = [_entry(entry, request) for entry in left]
        return {
            "value": PARTIAL,
            "reason": _left(left) if port["entry"] or not reason else reason,
            "missing": entries,
            **needed,
        }
    if theirs:
        lacks = "; ".join(_short(entry) for entry in theirs)
        said = f"nothing is left to write in the package, but verl-omni {request.profile.name} does not carry {lacks}"
        if agrees(request, source, port["derived_from"]):
            said += ". Tests have compared module and loop with those of the real pipeline"
        return {"value": UNPROVEN, "reason": said, "missing": [], **needed}
    if not is_proven(request, source, port["derived_from"]):
        return {"value": UNPROVEN, "reason": not_run(request), "missing": []}
    return {"value": COMPLETE, "reason": RUN, "missing": []}


def _needs(missing: list[Missing], request: SpecRequest) -> Iterator[dict[str, str]]:
    """Yield what VeRL-Omni must support for it, with its place in VeRL-Omni if known."""
    for entry in missing:
        place = request.profile.limits.get(entry.limit) if entry.limit is not None else None
        if place is not None:
            yield {"key": entry.key, "what": entry.what, "at": place}


def _not_carried(theirs: list[Missing], request: SpecRequest) -> str:
    """Return the message with which the agent loop refuses a request, instead of retrying it forever."""
    named = "; ".join(f"{_short(entry)} ({request.profile.limits[str(entry.limit)]})" for entry in theirs)
    return f"VeRL-Omni {request.profile.name} does not carry {named}"


def _short(entry: Missing) -> str:
    """Return what is missing, without the reason."""
    return entry.what.partition(":")[0]


def _left(missing: list[Missing]) -> str:
    """Return in one line what the source does not establish and a person must write."""
    whats = list(dict.fromkeys(_short(entry) for entry in missing))
    more = f", and {len(whats) - 2} more" if len(whats) > 2 else ""
    return f"left to write: {'; '.join(whats[:2])}{more}"


def _entry(missing: Missing, request: SpecRequest) -> dict[str, str]:
    version = request.report.upstream.version or request.report.upstream.label
    return {
        "key": missing.key,
        "what": missing.what,
        "at": missing.at,
        "where": missing.where,
        "message": missing.message(version),
    }


def _port(port: Port | None, denoiser: tuple[str, str] | None, source: UpstreamSource) -> dict[str, Any]:
    if port is None or denoiser is None:
        return {"module": None, "class": None, "entry": None, "layer_classes": [], "inputs": [], "parameters": [],
                "derived_from": [], "fused": [], "checkpointed": [], "builder": None, "loader": False,
                "source_digest": None, "method": "forward", "context": [],
                "context_module": None, "state": []}  # fmt: skip
    return {
        "module": denoiser[0],
        "class": denoiser[1],
        "entry": port.entry,
        "layer_classes": list(port.layer_classes),
        "inputs": list(port.inputs),
        "parameters": list(port.parameters),
        "derived_from": list(port.derived_from),
        "source_digest": digest(source, port.derived_from),
        "checkpointed": list(port.checkpointed),
        "builder": port.builder or None,
        "loader": port.loader,
        **{
            key: True
            for key in ("handed", "reads", "file", "constant", "shared", "tables", "structures")
            if getattr(port, key)
        },
        "method": port.method,
        "context": [{"field": field, "argument": argument} for field, argument in port.context],
        "context_module": port.context_module or None,
        "state": [{"owner": k.owner, "name": k.name, "first": k.first} for k in port.state if k.first is not None],
        "fused": [{"owner": f.owner, "name": f.name, "parts": list(f.parts)} for f in port.fused],
        **imported(port),
    }


def imported(port: Port) -> dict[str, Any]:
    """The form of a package that imports its denoiser, and the files that it executes, each with its SHA-256."""
    return {"form": IMPORTED, "executed": [{"file": file, "digest": digest} for file, digest in port.executed]}


def _guidance(facts: Established, sent: Mapping[str, float], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What the source says of guidance, for people, and the settings that the rollout gives to the pipeline.

    The rollout carries how the branches are combined, so nothing here is computed with. ``filled`` are scales that
    every request carries, asked for or not; the launch script sets them, too.
    """
    formula, branches = facts.value("detail.cfg.formula"), facts.value("answers.cfg.branches")
    packed = facts.value("detail.cfg.parameters") if facts.packed else None
    found = {e["name"]: e["default"] for e in packed} if packed else dict(facts.value("answers.cfg.scales") or {})
    found = {**found, **recipe} if branches != 1 else {}
    known = facts.value("detail.cfg.others") or {}
    # A preset may say that a scale's second name is the scale: the other expert's is read first, and changes nothing.
    second = {name for name, names in known.items() if name not in recipe and not recipe.keys().isdisjoint(names)}
    found = {name: value for name, value in found.items() if name not in second}
    others = {name: names for name, names in known.items() if name in found}
    asked_later = {name for names in others.values() for name in names}
    defaults = {name: value for name, value in found.items() if value is not None and name not in asked_later}
    filled = [
        {"name": name, "scale": scale} for scale in defaults for name in (scale, *others.get(scale, ())) if name in sent
    ]
    carried = [entry["scale"] for entry in filled]
    return {
        "branches": branches,
        "formula": formula,
        "neutral": 0.0 if formula == "c+s(c-u)" else 1.0,
        "scale": next(iter([*carried, *defaults]), None),
        "others": [{"name": name, "others": names} for name, names in others.items() if name in defaults],
        "defaults": defaults,
        **({"filled": filled} if filled else {}),
    }


def _checkpoint(facts: Established) -> dict[str, Any]:
    """How the loader maps names, for the person who writes the key map."""
    return {
        "rules": [],
        "files": list(facts.value("answers.checkpoint.files") or []),
        "renames": [list(pair) for pair in facts.value("answers.checkpoint.renames") or []],
        "stacked": [[str(part) for part in row] for row in facts.value("answers.checkpoint.stacked") or []],
        "loader": facts.place("detail.checkpoint.loader_location"),
    }


def _inputs(facts: Established) -> dict[str, Any]:
    return {
        "kinds": list(facts.value("answers.prompt.kind") or []),
        "arguments": list(facts.value("answers.denoiser.params") or []),
        "step": facts.place("detail.scheduler.step_location", "detail.scheduler.loop_location"),
        "loop": facts.place("detail.scheduler.loop_location"),
        "steps_in_extra_args": "num_inference_steps" in (facts.value("answers.prompt.extra_args") or []),
    }
