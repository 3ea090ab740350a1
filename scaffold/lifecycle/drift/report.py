"""The result of a comparison, and its stable JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaffold.inspect.facts import Evidence
    from scaffold.lifecycle.drift.dependents import Dependents
    from scaffold.lifecycle.drift.facts import ExecutedChange, FactChange
    from scaffold.lifecycle.drift.hunks import Hunk
    from scaffold.lifecycle.drift.surface import SurfaceChange


# What breaks if a package keeps an outdated answer, by fact.

CONSEQUENCES = {
    "verdict.path": "the pipeline is integrated in another way, or not at all",
    "answers.scheduler.steps": "rollout and training run different numbers of steps; the adapter's check of the "
    "schedule raises",
    "answers.scheduler.shift": "rollout and training have different noise levels; the adapter's check raises",
    "answers.scheduler.direction": "noise levels run the other way; the adapter's check raises",
    "answers.scheduler.arguments": "the recording scheduler is called with arguments in other places",
    "answers.scheduler.negated": "the sign of the velocity differs between rollout and training: log-probs are wrong",
    "answers.scheduler.inline": "there is no scheduler call to record any more",
    "detail.scheduler.keywords": "the recording scheduler is called with keywords that it does not take",
    "detail.scheduler.attribute": "the recording scheduler stands where nobody calls it",
    "detail.scheduler.kwargs_attribute": "arguments of the recording scheduler stand where nobody reads them",
    "detail.scheduler.sample_rank": "samples have another number of dimensions than the adapter expects",
    "detail.pipeline.module": "importing the rollout adapter fails",
    "detail.pipeline.class": "importing the rollout adapter fails",
    "detail.request.module": "the rollout adapter imports a request type that moved or is no longer used",
    "detail.request.class": "the rollout adapter is given another request type",
    "detail.config.module": "the rollout adapter imports a configuration type that moved",
    "detail.config.class": "the rollout adapter is given another configuration type",
    "detail.output.module": "the rollout adapter imports a result type that moved",
    "detail.output.class": "the rollout adapter returns another result type than the engine reads",
    "detail.step_execution": "the engine can run the pipeline step by step, past the recording: without the adapter's "
    "refusal no log-probs come back",
    "answers.cfg.branches": "guidance is computed from other branches than in training: log-probs are wrong",
    "answers.cfg.renorm": "a renorm of the guidance is missing in training, or no longer known upstream",
    "answers.cfg.scales": "guidance has other scales or defaults than training reads",
    "detail.cfg.formula": "guidance is computed otherwise than in training: log-probs are wrong",
    "detail.cfg.interval_rule": "guidance is on at other steps than in training: log-probs are wrong",
    "detail.cfg.epsilon": "the renorm divides by something else than in training",
    "detail.cfg.parameters": "requests name guidance that upstream does not read, or leave out what it does",
    "detail.prompt.begin_token": "rollout and training see different tokens",
    "detail.prompt.end_token": "rollout and training see different tokens",
    "detail.prompt.add_special_tokens": "rollout and training see different tokens",
    "detail.prompt.chat_template": "rollout and training see different tokens",
    "detail.prompt.key": "the prompt stands where upstream does not look",
    "detail.negative.kind": "the unconditional branch sees another prompt than in training",
    "detail.negative.keys": "a negative prompt stands where upstream does not look",
    "answers.tokens": "special tokens have other ids than in training",
    "detail.tokens.text": "special tokens are spelled otherwise than in training",
    "answers.vae.channels": "latents have another number of channels",
    "answers.vae.downsample": "latents have another size for the same image",
    "detail.latents.patch": "a latent token covers another part of the image",
    "answers.latents.layout": "latents lie otherwise in memory than training expects",
    "detail.text_attention": "text attends otherwise than in training: velocities differ",
    "detail.rope.image_position": "image tokens have other positions than in training: velocities differ",
    "detail.scheduler.shift_setting": "requests ask for the time shift under a name that upstream does not read; the "
    "adapter's check raises",
    "detail.sequence": "the tokens of a sample stand in another order than in training: velocities differ",
    "detail.timestep.order": "the timestep is embedded otherwise than in training: velocities differ",
    "detail.timestep.scale": "the timestep is embedded otherwise than in training: velocities differ",
    "detail.timestep.max_period": "the timestep is embedded otherwise than in training: velocities differ",
    "answers.checkpoint.stacked": "the engine packs weights otherwise: what LoRA targets bind to may change",
    "answers.checkpoint.renames": "the engine keeps weights under other names: what LoRA targets bind to may change",
    "detail.config_files": "sizes are read from another configuration file or key",
    "answers.trajectory.fields": "upstream's own trajectory is elsewhere; the recording scheduler does not read it",
    "answers.cfg.execution": "guidance is batched otherwise; the numbers stay the same up to rounding",
}


SCHEMA = 1


@dataclass(frozen=True)
class FactDrift:
    """A changed fact and what depends on it; ``dependents`` is None if nothing could be rendered."""

    change: FactChange
    dependents: Dependents | None

    @property
    def effect(self) -> str | None:
        """What breaks, in one sentence; None if nothing is known to break."""
        if self.dependents is not None and self.dependents.refused is not None:
            return f"nothing can be rendered any more: {self.dependents.refused}"
        return CONSEQUENCES.get(self.change.name)

    @property
    def matters(self) -> bool:
        """Whether a rendered line depends on the fact, or its new value cannot be rendered."""
        return self.dependents is not None and bool(
            self.dependents.hunks or self.dependents.refused or self.dependents.kept
        )


@dataclass(frozen=True)
class Drift:
    """What changed between two versions.

    Attributes:
        pipeline: as the user named it.
        before: version of the older source, or its label.
        after: the same for the newer source.
        package: path of the package; None if none was given.
        follow: the command that brings the package to the newer version.
        gone: why the newer version has no such pipeline; None where it has.
        facts: one for each fact that changed.
        together: lines that change only when several facts do.
        ported: lines that change because their upstream code changed.
        surface: names the package uses that the newer version lacks or changes.
        rendering: why rendered lines are unknown; None if they are known.
        formula: what the last rollout was seen to step with, and the one before under the same settings was not, as
            ``formula.txt`` and git have them.
        executed: files of the package's denoiser that changed.
    """

    pipeline: str
    before: str
    after: str
    package: str | None
    follow: str
    gone: str | None
    facts: tuple[FactDrift, ...]
    together: tuple[Hunk, ...]
    ported: tuple[Hunk, ...]
    surface: tuple[SurfaceChange, ...]
    rendering: str | None
    formula: tuple[str, ...] = ()
    executed: tuple[ExecutedChange, ...] = ()

    @property
    def affected(self) -> bool | None:
        """Whether the package, or what `new` renders, must change; None if unknown."""
        lines = self.together or self.ported or self.executed or any(fact.matters for fact in self.facts)
        if self.gone is not None or self.surface or self.formula or lines:
            return True
        return False if self.rendering is None else None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON: all keys are always present, unknown values are null."""
        return {
            "schema": SCHEMA,
            "pipeline": self.pipeline,
            "from": self.before,
            "to": self.after,
            "package": self.package,
            "affected": self.affected,
            "gone": self.gone,
            "rendering": self.rendering,
            "facts": [_fact(fact) for fact in self.facts],
            "formula": list(self.formula),
            "together": [_hunk(hunk) for hunk in self.together],
            "ported": [_hunk(hunk) for hunk in self.ported],
            "executed": [
                {"file": change.file, "changed": list(change.changed), "gone": change.gone} for change in self.executed
            ],
            "surface": [_surface(change) for change in self.surface],
        }


def _fact(fact: FactDrift) -> dict[str, Any]:
    change, dependents = fact.change, fact.dependents
    return {
        "fact": change.name,
        "before": change.before.value,
        "after": change.after.value,
        "confidence": {"before": change.before.confidence, "after": change.after.confidence},
        "evidence": {"before": _places(change.before.evidence), "after": _places(change.after.evidence)},
        "spec": list(dependents.keys) if dependents is not None else None,
        "kept": list(dependents.kept) if dependents is not None else None,
        "refused": dependents.refused if dependents is not None else None,
        "lines": [_hunk(hunk) for hunk in dependents.hunks] if dependents is not None else None,
        "effect": fact.effect,
    }


def _hunk(hunk: Hunk) -> dict[str, Any]:
    return {
        "file": hunk.file,
        "line": hunk.line,
        "before": list(hunk.before),
        "after": list(hunk.after),
        "edited": hunk.edited,
    }


def _surface(change: SurfaceChange) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "name": change.name,
        "file": change.file,
        "line": change.line,
        "before": change.before.text if change.before else None,
        "after": change.after.text if change.after else None,
        "evidence": {
            "before": _places([change.before.place] if change.before and change.before.place else []),
            "after": _places([change.after.place] if change.after and change.after.place else []),
        },
        "effect": change.effect,
    }


def _places(evidence: tuple[Evidence, ...] | list[Evidence]) -> list[dict[str, Any]]:
    return [{"file": place.file, "line": place.line} for place in evidence]
