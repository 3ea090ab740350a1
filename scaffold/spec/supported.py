"""Conventions that the templates can render; of another a template would silently compute something else."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from scaffold.errors import RefusedError

if TYPE_CHECKING:
    from scaffold.inspect import Fact, Report

# Fact -> values that templates render. An unknown fact passes here only where it is listed in MAY_BE_UNKNOWN.
SUPPORTED: dict[str, Collection[Any]] = {
    "answers.scheduler.inline": (False, True),
    "answers.scheduler.direction": ("descending", "ascending"),
    "answers.scheduler.negated": (False, True),
    "answers.scheduler.steps": ("n", "n-1"),
    "detail.scheduler.sample_rank": (2, 3),
    "detail.cfg.formula": ("u+s(c-u)",),
    "detail.cfg.interval_rule": ("lo < sigma <= hi", "lo <= sigma <= hi"),
    "detail.negative.kind": ("empty",),
    "detail.timestep.order": (["cos", "sin"], ["sin", "cos"]),
    "detail.text_attention": ("causal", "full"),
    "detail.rope.image_position": ("text_length", "sequential"),
    "detail.layers.activation": ("silu", "gelu"),
}
MAY_BE_UNKNOWN = frozenset(
    {
        "answers.scheduler.steps",  # rendered as NotImplementedError
        "detail.cfg.interval_rule",  # no interval
        "detail.text_attention",  # the preset may say it, and is asked
        "detail.rope.image_position",
        "detail.layers.activation",
    }
)
# Fact -> others of which one serves in its place where it is known.
INSTEAD = {
    "detail.scheduler.sample_rank": ("detail.update.rank", "detail.patches.rank"),
    "detail.negative.kind": ("detail.negative.text", "detail.chat.negative_text"),
}
# (fact, value) -> a fact that must be known then.
NEEDS = {
    ("answers.scheduler.inline", True): "detail.update.method",
    ("answers.scheduler.direction", "ascending"): "detail.update.method",
    ("detail.denoiser.predicts_clean", True): "detail.prediction.floor",
    ("answers.scheduler.negated", True): "detail.prediction.toward_clean",
}
# What a convention is about, where its name does not say it.
WORDS = {
    "detail.scheduler.sample_rank": ("its latents have {value} dimensions", "the shape of its latents is unknown"),
    "answers.scheduler.direction": ("its schedule is {value}", "the direction of its schedule is unknown"),
    "detail.cfg.formula": ("it combines predictions as {value}", "how it combines predictions is unknown"),
    "detail.negative.kind": ("its negative prompt is {value}", "what stands for no negative prompt is unknown"),
}
STEP_ARGUMENTS = frozenset({"model_output", "timestep", "sigma", "sample", "dt", "generator"})


def refuse_unsupported(report: Report) -> None:
    """Raise `RefusedError` for the first convention that no template renders, with its place in the source."""
    if report.task is not None and not _known(report, "detail.edit.prefix"):
        raise RefusedError("what stands in the decoder's cache before the loop could not be followed in its source")
    for name, values in SUPPORTED.items():
        fact = report.fact(name)
        if any(_known(report, n) for n in INSTEAD.get(name, ())) or (fact.value is None and name in MAY_BE_UNKNOWN):
            continue
        if fact.value not in values:
            _refuse(report, name, fact)
    scheduler = report.fact("answers.scheduler.class")
    if scheduler.value is not None and not _known(report, "detail.schedule.kind"):
        _refuse(report, "answers.scheduler.class", scheduler, f"its schedule is that of {scheduler.value}")
    for (name, value), needed in NEEDS.items():
        if report.fact(name).value == value and not _known(report, needed):
            _refuse(report, name, report.fact(name))
    arguments = report.fact("answers.scheduler.arguments")
    ported = report.fact("answers.scheduler.inline").value or _known(report, "detail.construction.method")
    if not ported and not {"model_output", "sample"} <= set(arguments.value or ()) <= STEP_ARGUMENTS:
        _refuse(report, "answers.scheduler.arguments", arguments)
    kinds = report.fact("answers.prompt.kind")
    if "text" not in (kinds.value or ()):
        _refuse(report, "answers.prompt.kind", kinds)
    interval = report.fact("answers.cfg.interval")
    if interval.value is not None and not _known(report, "detail.cfg.interval_rule"):
        _refuse(report, "answers.cfg.interval", interval, "which steps its guidance interval holds is unknown")
    renorm, epsilon = report.fact("answers.cfg.renorm"), report.fact("detail.cfg.epsilon")
    if renorm.value and epsilon.value is None:
        _refuse(report, "detail.cfg.epsilon", epsilon)
    if set(renorm.value or ()) - {"text_channel", "global", "channel"}:
        _refuse(report, "answers.cfg.renorm", renorm)


def _known(report: Report, name: str | None) -> bool:
    return name is not None and report.fact(name).value is not None


def _refuse(report: Report, name: str, fact: Fact, said: str | None = None) -> None:
    place = f" ({fact.evidence[0].file}:{fact.evidence[0].line})" if fact.evidence else ""
    unknown = fact.confidence == "unknown" or fact.value is None
    if said is None and name in WORDS:
        said = WORDS[name][unknown].format(value=fact.value)
    if said is None:
        said = f"{name.partition('.')[2]} is {'unknown' if unknown else repr(fact.value)}"
    raise RefusedError(
        f"{report.upstream.pipeline}: {said}{place}, which no template renders yet",
        hint="see `omni-scaffold inspect` for all answers",
    )
