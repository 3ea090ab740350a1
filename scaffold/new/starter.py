"""Writes a starting preset: what ``inspect`` knows of a pipeline, and what a person may set, commented out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from scaffold.checkpoint import CheckpointHeaders
from scaffold.errors import ScaffoldError
from scaffold.grade import launch
from scaffold.grade.decide import compose
from scaffold.grade.established import Established
from scaffold.grade.layout import layouts
from scaffold.render.filters import toml
from scaffold.spec.build import SpecBuilder, sources_of
from scaffold.spec.preset import EMPTY, Preset
from scaffold.spec.sections.recipe import DEFAULTS
from scaffold.terminal.printable import printable

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.spec import SpecRequest
    from scaffold.upstream import UpstreamSource

# Facts that a preset must supply if the source does not: key of [architecture], fact, an example.
_ASKED = (
    ("text_attention", "detail.text_attention", "causal"),
    ("image_position", "detail.rope.image_position", "sequential"),
    ("sequence", "detail.sequence", ["text", "latents"]),
    ("timestep_max_period", "detail.timestep.max_period", 10000.0),
    ("timestep_scale", "detail.timestep.scale", 1.0),
)
_LORA = {"rank": 64, "alpha": 128}


def starter(request: SpecRequest, source: UpstreamSource) -> str:
    """Return the text of a preset that changes nothing until something in it is uncommented.

    Args:
        request: report, names and profile as for `new`; the new preset extends its preset.
        source: the version of vllm-omni.
    """
    recipe = _recipe(request, source)
    return "\n".join(line.rstrip() for line in _lines(request.report, request.preset, recipe)) + "\n"


def _recipe(request: SpecRequest, source: UpstreamSource) -> Mapping[str, Any]:
    """Return the recipe's values that `new` puts into a package, composed or ported."""
    try:
        return compose(request, source).spec.sections["recipe"]
    except ScaffoldError:
        builder = SpecBuilder(sources_of(request, CheckpointHeaders("no checkpoint", (), ()), "", {}))
        layout = layouts().get(str(request.report.value("detail.pipeline.registry_key")))
        size = layout.size if layout is not None else None
        builder.fill("recipe", partial(launch.recipe, facts=Established(request.report, None), size=size))
        return builder.sections["recipe"]


def _lines(report: Report, preset: Preset, recipe: Mapping[str, Any]) -> Iterator[str]:
    pipeline = report.upstream.pipeline
    key = report.value("detail.pipeline.registry_key") or pipeline
    yield f"# What no source tells about {printable(pipeline)} of vllm-omni {printable(report.upstream.label)}."
    yield "# A line that is commented out has the value that `omni-scaffold new` uses without it."
    yield f"pipelines = [{toml(str(key))}]"
    if preset is not EMPTY:
        yield f"# Whatever is not said here is that of the packaged preset {preset.name}."
        yield f"base = {toml(preset.name)}"
    else:
        yield '# A JSON file in manifests/ beside this, {"tensor": {"dtype": "BF16", "shape": [1, 2]}}: with it `new`'
        yield "# needs no --checkpoint."
        yield '# manifest = "model.json"'
    yield ""
    yield "[names]"
    yield _entry("display", preset.value("names", "display") or "", "what the documentation calls the model")
    yield _entry("repository", preset.value("names", "repository") or "OWNER/NAME", "its checkpoint on the Hub")
    yield ""
    yield "# Guidance while training; vllm-omni's defaults are for inference."
    yield "[cfg.defaults]"
    yield from _guidance(report, preset)
    yield ""
    yield "[recipe]"
    for name in (name for name in DEFAULTS if name in recipe):  # validation uses the same number
        yield _entry(name, recipe.get(name), "" if recipe.get(name) is not None else "no source says it")
    yield ""
    yield "[lora]"
    for name, rank in _LORA.items():
        own = preset.value("lora", name)
        yield _entry(name, rank if own is None else own)
    yield ""
    yield "# What the agent loop's chat template makes of a prompt."
    yield "[prompt]"
    for name, example in (("chat_user", "<|im_start|>user\n"), ("chat_end", "<|im_end|>")):
        own = preset.value("prompt", name)
        yield _entry(name, own or example, "" if own else "an example; without it the prompt is sent as it is")
    yield from _architecture(report, preset)
    yield from _tokens(report, preset)


def _guidance(report: Report, preset: Preset) -> Iterator[str]:
    fact = report.fact("answers.cfg.scales")
    scales: Mapping[str, Any] = fact.value if isinstance(fact.value, Mapping) else {}
    place = f"{fact.evidence[0].file}:{fact.evidence[0].line}" if fact.evidence else "no place"
    own: Mapping[str, Any] = preset.value("cfg", "defaults") or {}
    for name in dict.fromkeys([*own, *scales]):
        value = own.get(name, scales.get(name))
        yield _entry(name, value, f"preset {preset.name}" if name in own else f"vllm-omni's default, {place}")
    if not own and not scales:
        yield "# inspect found no scale of guidance that a request sets"


def _architecture(report: Report, preset: Preset) -> Iterator[str]:
    unknown = [entry for entry in _ASKED if report.fact(entry[1]).confidence == "unknown"]
    asked = [entry for entry in unknown if preset.value("architecture", entry[0]) is None]
    if asked:
        yield ""
        yield "# The source does not say these; the values are examples."
        yield "[architecture]"
        yield from (_entry(name, example) for name, _, example in asked)


def _tokens(report: Report, preset: Preset) -> Iterator[str]:
    texts = report.value("detail.tokens.text")
    for name, text in texts.items() if isinstance(texts, Mapping) else ():
        if preset.value("tokens", name) is None and isinstance(text, str):
            yield ""
            yield "# Where the released tokenizer gives another id than the configuration says: 0 stands for it."
            yield f"# [tokens.{_key(name)}]"
            yield _entry("text", text)
            yield _entry("id", 0)


def _entry(name: str, value: Any, remark: str = "") -> str:
    """Return one value, commented out, since TOML has no null."""
    shown = toml(value).replace("\\u000a", "\\n") if value is not None else '"?"'
    return f"# {_key(name)} = {shown}{f'  # {printable(remark)}' if remark else ''}"


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("-", "_").isidentifier() else toml(name)
