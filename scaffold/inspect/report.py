"""The answers to all questions about one pipeline, and their stable JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scaffold.inspect.facts import UNKNOWN, Fact
from scaffold.inspect.shown_details import DETAILS, shown_details

if TYPE_CHECKING:
    from scaffold.checkpoint import CheckpointHeaders

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
        for key, fact in self.facts.items():
            if key.startswith(ANSWERS):
                question, _, name = key.removeprefix(ANSWERS).partition(".")
                if name:
                    answers.setdefault(question, {})[name] = fact.value
                else:
                    answers[question] = fact.value
            elif not key.startswith("verdict."):
                continue
            shown[key] = fact
        for key, fact in shown_details(self.facts):
            question, _, name = key.partition(".")
            details.setdefault(question, {})[name] = fact.value
            shown[DETAILS + key] = fact
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
