"""Both sides guide with the same values."""

from __future__ import annotations

from typing import Any

import torch

from scaffold.verify.contracts.rollout import LogProbs
from scaffold.verify.formulas import difference, guided, transition, worst_relative
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.guidance import as_velocity, guidance, predicts_clean, step
from scaffold.verify.subject.rollout import drive

ID = "cfg-settings"
TITLE = "rollout and training guide with the same values, given or not, in any container"
ROLLED = True
PITFALLS = (29, 41)
GIVEN = 2.5
LIMIT = 1e-5  # as for cfg-formula; a scale of 3 for 4 gives 7e-3


def run(subject: Any) -> Measured:
    """Training without settings must use upstream's values; a request's settings must reach upstream."""
    found = guidance(subject)
    settings = subject.settings()
    module, latents, _, result = step(subject, settings)
    sigmas = [float(value) for value in subject.scheduler(settings).sigmas[:3]]
    without = module.unconditional[-1] if module.unconditional else module.conditional[-1] + 1
    velocity = guided(module.conditional[-1], without, sigmas[1], found.values(), 1e-8)
    velocity = as_velocity(velocity, latents[:, 1], sigmas[1], predicts_clean(subject))
    mean, _ = transition("sde", latents[:, 1], velocity, (sigmas[1], sigmas[2], sigmas[1]), 0.7)
    value = worst_relative(result[1], mean)
    problems = []
    if found.dropped:
        left = ", ".join(found.dropped)
        problems.append(f"a request that gives none brings no {left} to upstream, whose default is not the recipe's")
    name = found.names["text_scale"]
    given: dict[str, Any] = {name: GIVEN}
    driver = drive(subject)
    if (seen := driver.roll_out(**given).extra_args.get(name)) != GIVEN:
        problems.append(f"{name}={GIVEN} of a request reaches upstream as {seen!r}")
    if "interval" in found.names:
        name, driver = found.names["interval"], drive(subject)
        settings_of: dict[str, Any] = {"list": {name: [0.0, 1.0]}, "tuple": {name: (0.0, 1.0)}}
        as_list, as_tuple = (driver.roll_out(**settings_of[kind]).extra_args[name] for kind in ("list", "tuple"))
        if as_list != as_tuple or type(as_list) is not type(as_tuple):
            problems.append(f"{name} given as a list reaches upstream as {as_list!r}, given as a tuple as {as_tuple!r}")
    shown = ", ".join(f"{found.names[role]}={value}" for role, value in found.defaults.items())
    return Measured(
        f"{value:.1e} between training's defaults and what upstream sees ({shown})", problems, value, LIMIT, "relative"
    )


def run_recorded(subject: Any) -> Measured:
    """What a request asks for must decide the rollout, and training must refuse recorded calls of another scale."""
    name = subject.spec.get("guidance", {}).get("scale") if subject.spec else subject.table.guidance
    guided = subject.recording["guided"]
    if not name or not guided:
        raise NotDrivableError("the pipeline has no guidance scale")
    module, problems, worst = subject.new_module(), [], 0.0
    default = subject.recording["samples"][0]
    if getattr(subject, "carries", False):
        return _together(subject, module, name, {None: default, **guided})
    if subject.spec:
        subject.inputs_of(module, [default])  # raises where training's defaults are not the rollout's
    for scale, sample in guided.items():
        settings = subject.settings(**{name: scale})
        worst = max(worst, difference(subject.recomputed(module, [sample], settings)[0], sample["log_probs"]))
        if not subject.spec:
            continue  # what it hands to training holds no scale
        try:
            subject.inputs_of(module, [sample])
            problems.append(f"calls of a rollout with {name}={scale} are taken for those of the default")
        except ValueError:
            continue
    shown = ", ".join(f"{scale:g}" for scale in guided)
    return Measured(f"{name} {shown}: log-probs {worst:.1e} apart", problems, worst, LogProbs.LIMIT, "absolute")


def _together(subject: Any, module: Any, name: str, samples: dict[float | None, Any]) -> Measured:
    """Guidance is the request's: samples of other scales are scored in one micro-batch, each by its own."""
    scored = subject.recomputed(module, list(samples.values()), subject.settings())
    recorded = torch.stack([sample["log_probs"] for sample in samples.values()])
    worst = difference(scored, recorded)
    ends = [sample["latents"][-1] for sample in samples.values()]
    changed = any(not torch.equal(ends[0], other) for other in ends[1:])
    problems = [] if changed else [f"{name} of a request changes nothing in its rollout"]
    shown = ", ".join("its own" if scale is None else f"{scale:g}" for scale in samples)
    told = f"{name} {shown} in one micro-batch: log-probs {worst:.1e} apart"
    return Measured(told, problems, worst, LogProbs.LIMIT, "absolute")
