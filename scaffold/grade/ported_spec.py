"""The spec of a package with a ported denoiser: sections filled from the facts alone, and what is left to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from scaffold.checkpoint import CheckpointHeaders
from scaffold.grade import COMPLETE, PARTIAL, UNPROVEN, launch
from scaffold.grade.established import FORMULAS, Established
from scaffold.grade.layout import layouts
from scaffold.grade.loading import find_loading
from scaffold.grade.missing import Missing, find_missing
from scaffold.grade.needs import find_needs
from scaffold.grade.noise_levels import noise_levels
from scaffold.grade.origin import digest
from scaffold.grade.proof import RUN, agrees, batches_of, is_proven, not_run
from scaffold.grade.recording import find_recording
from scaffold.port import Port
from scaffold.spec.build import SpecBuilder, SpecRequest, sources_of
from scaffold.spec.model import IntegrationSpec
from scaffold.spec.sections import cfg, docs, names, prompt, schedule, target, tokens, tool, upstream
from scaffold.upstream import UpstreamSource

# The sections known without a checkpoint and without an architecture the blocks can compose.
SECTIONS = (tool, target, upstream, tokens, schedule, cfg, prompt, names)


def build_ported_spec(
    request: SpecRequest, port: Port | None, denoiser: tuple[str, str] | None, reason: str, source: UpstreamSource
) -> IntegrationSpec:
    """Return the spec of a package with a ported denoiser: the established values, and what a person must write.

    A missing value is not an error: `find_missing` and `find_needs` list it with its place.

    Args:
        request: report, names and contract profile.
        port: the ported denoiser; None if its class is unknown.
        denoiser: module and class it was ported from.
        reason: why the templates could not compose the package.
        source: the version of vllm-omni.

    Raises:
        PresetError: a team preset is invalid.
    """
    facts = Established(request.report, port)
    recording = find_recording(facts, source)
    loading = find_loading(facts, source)
    headers = request.headers or CheckpointHeaders("no checkpoint", (), ())
    origin = "checkpoint headers" if request.headers else headers.source
    builder = SpecBuilder(sources_of(request, headers, origin, headers.configs))
    for section in SECTIONS:
        builder.fill_with(section)
    sections = builder.sections
    builder.fill("media", partial(launch.media, facts=facts))
    builder.fill("deploy", partial(launch.deploy, facts=facts, source=source))
    layout = None if request.headers else layouts().get(str(request.report.value("detail.pipeline.registry_key")))
    weights = sum(tensor.nbytes for tensor in layout.headers().tensors.values()) if layout is not None else None
    size = layout.size if layout is not None else None
    builder.fill("recipe", partial(launch.recipe, facts=facts, weights=weights, size=size))
    builder.fill("lora", partial(launch.lora, port=port, reached=loading.held))
    builder.fill_with(docs)
    missing = find_missing(facts, request.names.model, recording, loading)
    missing += find_needs(facts, request.names.model, sections, source)
    if not request.profile.lora_hook:  # without the hook the package refuses LoRA
        missing = [entry for entry in missing if entry.key != "lora_sync"]
    ported = _port(port, denoiser, source)
    if port is not None and port.own:
        known = {name: facts.value(f"detail.model.{name}") for name in ("output", "first", "tokenizer")}
        ported |= {"own": True, **known}
    sections["grade"] = _grade(missing, reason, request, ported, source)
    if sections["grade"]["value"] == COMPLETE:
        ported |= batches_of(request)
    sections["port"] = ported
    sections["guidance"] = _guidance(facts, request.profile.sent, request.preset.value("cfg", "defaults") or {})
    sections["prediction"] = {"sign": facts.sign}
    sections["levels"] = noise_levels(facts)
    established = sections["levels"]["kind"] is not None
    known = {key: sections["schedule"].get(key) for key in ("steps", "shift", "direction")}
    sections["schedule"] = {"established": established, **known}
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
    sections["recording"] = recording.section()
    for name in ("media", "deploy", "lora"):
        sections[name] = sections.pop(name)  # placed later in the file, after the sections that describe the package
    sections["target"]["smoke_runner"] = None  # its smoke test asks for a checkpoint, which no CI has
    sections["cfg"].pop("defaults", None)  # requests carry the values of [guidance]
    for name in ("config_class", "layer_class"):
        del sections["names"][name]
    sections["verify"] = dict(request.preset.sections.get("verify", {}))
    builder.sections = {name: values for name, values in sections.items() if values}
    return builder.spec()


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
        return {"value": PARTIAL, "reason": _left(left) if port["entry"] else reason, "missing": entries, **needed}
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
        **({"left_out": left_out} if (left_out := _left_out(port)) else {}),
    }


def _left_out(port: Port) -> list[str]:
    """Return a line for each kind of code that runs only in inference, with its places."""
    places: dict[str, dict[str, list[str]]] = {}
    for gap in port.gaps:
        if gap.left_out is not None:
            places.setdefault(gap.left_out, {}).setdefault(gap.file, []).append(str(gap.line))
    return [
        f"{kind}: {'; '.join(f'{file}:{_listed(lines)}' for file, lines in files.items())}"
        for kind, files in places.items()
    ]


def _listed(lines: list[str]) -> str:
    return ", ".join(dict.fromkeys(lines))


def _guidance(facts: Established, sent: Mapping[str, float], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Formula, names and defaults, overridden by the recipe's; unknown values are None.

    ``filled`` are scales that every request carries, asked for or not; the launch script sets them, too.
    """
    formula, kind = facts.value("detail.cfg.formula"), facts.guidance_kind
    scales = facts.value("answers.cfg.scales") or {}
    defaults = dict(scales)
    others: list[dict[str, Any]] = []
    scale = next(iter(scales)) if len(scales) == 1 else None
    expression = FORMULAS[formula].format(scale=f"guidance[{scale!r}]") if formula in FORMULAS and scale else None
    fewest: dict[str, Any] = {}
    unconditional, neutral = 1, 0.0 if formula == "c+s(c-u)" else 1.0
    if kind == "packed":
        packed = facts.value("detail.cfg.parameters")
        defaults = {entry["name"]: entry["default"] for entry in packed} if packed else defaults
    elif kind == "written":
        found = facts.value("detail.cfg.combination")
        defaults = {entry["name"]: entry["default"] for entry in found["settings"]}
        others = [{"name": e["name"], "others": e["others"]} for e in found["settings"] if e["others"]]
        expression, scale = found["text"], found["settings"][0]["name"]
        unconditional, neutral = found["unconditional"], found["neutral"]
        fewest = {key: found[key] for key in ("fewest", "above") if key in found}
    defaults = {name: recipe.get(name, value) for name, value in defaults.items()}
    defaults = {name: value for name, value in defaults.items() if value is not None}
    aliases = {entry["name"]: [entry["name"], *entry["others"]] for entry in others}
    filled = [
        {"name": name, "scale": scale} for scale in defaults for name in aliases.get(scale, [scale]) if name in sent
    ]
    return {
        "kind": kind,
        "established": kind is not None,
        "branches": facts.value("answers.cfg.branches"),
        "formula": formula,
        "expression": expression if kind in ("written", "pair") else None,
        "unconditional": unconditional,
        **fewest,
        "neutral": neutral,
        "scale": scale,
        "others": others,
        "defaults": defaults,
        **({"filled": filled} if filled else {}),
    }


def _checkpoint(facts: Established) -> dict[str, Any]:
    """How the loader maps names, for the person who writes the key map."""
    return {
        "rules": [],
        "key_map": "unknown",
        "files": list(facts.value("answers.checkpoint.files") or []),
        "renames": [list(pair) for pair in facts.value("answers.checkpoint.renames") or []],
        "stacked": [[str(part) for part in row] for row in facts.value("answers.checkpoint.stacked") or []],
        "loader": facts.place("detail.checkpoint.loader_location"),
    }


def _inputs(facts: Established) -> dict[str, Any]:
    return {
        "kinds": list(facts.value("answers.prompt.kind") or []),
        "arguments": list(facts.value("answers.denoiser.params") or []),
        "call": facts.place("answers.denoiser.method", "detail.scheduler.loop_location"),
        "step": facts.place("detail.scheduler.step_location", "detail.scheduler.loop_location"),
        "loop": facts.place("detail.scheduler.loop_location"),
        "steps_in_extra_args": "num_inference_steps" in (facts.value("answers.prompt.extra_args") or []),
    }
