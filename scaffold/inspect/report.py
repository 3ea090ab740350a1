"""The answers to all questions about one pipeline, and their stable JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scaffold.inspect.facts import UNKNOWN, Fact

if TYPE_CHECKING:
    from scaffold.checkpoint import CheckpointHeaders
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.inspect.facts import Fact
from scaffold.inspect.facts import Evidence, Fact, fact

SCHEMA = 1
ANSWERS = "answers."
EDIT = "edit"
"""The task of a request that brings images to make another one of; without a task it brings words alone."""
# Of a request that brings images: arguments of the denoiser that they reach.
CONDITIONS = "answers.edit.conditions"
PREFIX = "detail.edit.prefix"
"""What stands in a decoder's cache before the loop of such a request."""
# Which weight files are loaded, and what stands for all that a checkpoint has.
FILES, STREAMED = "answers.checkpoint.files", "*.safetensors"
# Of a refusal: whether nobody could train the pipeline. What a later release of diffusers has than the pinned one.
IMPOSSIBLE, LATER = "detail.verdict.impossible", "detail.verdict.later"
# Sentences on what a turn of the loop does with predictions that the rollout carries as a constant, or refuses.
TURN = "detail.turn.notes"


@dataclass(frozen=True)
class Upstream:
    """What was inspected."""

    version: str | None
    label: str
    pipeline: str
    module: str
    registry_keys: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """All facts of one pipeline.

    ``facts`` is keyed ``"answers.scheduler.steps"``, ``"verdict.path"``, ``"detail.…"``; details are for the tool's
    other parts, and few of them are in the JSON. ``failures`` are the questions that ended with an error, and which.
    ``task`` is that of the request on which the pipeline was followed.
    """

    upstream: Upstream
    facts: Mapping[str, Fact]
    headers: CheckpointHeaders | None = field(default=None, compare=False)
    failures: Mapping[str, str] = field(default_factory=dict, compare=False)
    task: str | None = None

    @property
    def verdict(self) -> dict[str, Any]:
        """``{"path", "reason"}`` as in the JSON."""
        return {"path": self.fact("verdict.path").value, "reason": self.fact("verdict.reason").value}

    def fact(self, key: str) -> Fact:
        """The fact under a full key, or under a key without ``answers.``; unknown where there is none."""
        return self.facts.get(key) or self.facts.get(ANSWERS + key) or UNKNOWN

    def value(self, key: str) -> Any:
        """The value of ``fact(key)``."""
        return self.fact(key).value

    def to_json(self) -> dict[str, Any]:
        """The JSON of the design page: every key always present, unknown values null."""
        answers: dict[str, Any] = {}
        details: dict[str, dict[str, Any]] = {}
        shown: dict[str, Fact] = {}
        for key, known in self.facts.items():
            if key.startswith(ANSWERS):
                question, _, name = key.removeprefix(ANSWERS).partition(".")
                if name:
                    answers.setdefault(question, {})[name] = known.value
                else:
                    answers[question] = known.value
            elif not key.startswith("verdict."):
                continue
            shown[key] = known
        for key, known in shown_details(self.facts):
            question, _, name = key.partition(".")
            details.setdefault(question, {})[name] = known.value
            shown[DETAILS + key] = known
        return {
            "schema": SCHEMA,
            "upstream": {
                "version": self.upstream.version,
                "pipeline": self.upstream.pipeline,
                "module": self.upstream.module,
                "registry_keys": list(self.upstream.registry_keys),
            },
            "verdict": self.verdict,
            "answers": answers,
            "details": details,
            "evidence": {
                key: [{"file": place.file, "line": place.line} for place in fact.evidence]
                for key, fact in shown.items()
            },
            "confidence": {key: fact.confidence for key, fact in shown.items()},
        }


# Facts beside the answers that a report shows, under the question that they belong to.

DETAILS = "details."
# Question and name to the fact.
SHOWN = {
    "prompt.negative": "detail.negative.kind",
    "prompt.negative_text": "detail.negative.text",
    "prompt.media": "detail.media.inputs",
    "prompt.required": "detail.media.required",
    "prompt.sizes": "detail.request.sizes",
    "prompt.default_seed": "detail.request.default_seed",
    "denoiser.predicts_clean": "detail.denoiser.predicts_clean",
    "cfg.formula": "detail.cfg.formula",
    "cfg.interval_rule": "detail.cfg.interval_rule",
    "scheduler.default_steps": "detail.scheduler.default_steps",
    "scheduler.loop": "detail.scheduler.loop_location",
}


def shown_details(facts: Mapping[str, Fact]) -> Iterator[tuple[str, Fact]]:
    """Each shown fact under ``question.name``; one that was not asked for is unknown.

    Args:
        facts: those of a report.
    """
    for name, key in SHOWN.items():
        yield name, facts.get(key, UNKNOWN)


# Reads facts of the autoencoder from a checkpoint's configuration if the source leaves them open.

AUTOENCODERS = ("vae/config.json",)
_CHANNELS = ("latent_channels", "z_dim", "z_channels")
_STRIDES = ("scale_factor_spatial", "spatial_compression_ratio", "downsample")


def configured(facts: Mapping[str, Fact], headers: CheckpointHeaders) -> dict[str, Fact]:
    """Return the facts that were unknown and that a configuration states."""
    found: dict[str, Fact] = {}

    def put(key: str, value: Any, file: str, kind: type) -> None:
        known = facts.get(f"answers.{key}", UNKNOWN)
        if known.confidence == "unknown" and isinstance(value, kind) and not isinstance(value, bool):
            found[f"answers.{key}"] = fact(value, [Evidence(f"{headers.source}/{file}", 1)])

    for file, config in _stated(headers, AUTOENCODERS):
        put("vae.class", config.get("_class_name"), file, str)
        put("vae.channels", next((config[name] for name in _CHANNELS if name in config), None), file, int)
        put("vae.downsample", _stride(config), file, int)
    return found


def _stated(headers: CheckpointHeaders, files: tuple[str, ...]) -> list[tuple[str, Mapping[str, Any]]]:
    name = next((name for name in files if name in headers.configs), None)
    return [] if name is None else [(name, headers.configs[name])]


def _stride(config: Mapping[str, Any]) -> int | None:
    """Return the pixels per latent side: as stated, or for ``AutoencoderKL`` a factor of two between its blocks."""
    stated = next((config[name] for name in _STRIDES if type(config.get(name)) is int), None)
    blocks = config.get("block_out_channels")
    if stated is None and config.get("_class_name") == "AutoencoderKL" and isinstance(blocks, list) and blocks:
        return int(2 ** (len(blocks) - 1))
    return stated
