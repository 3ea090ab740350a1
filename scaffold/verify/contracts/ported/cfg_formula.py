"""Guidance against the formula in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from scaffold.verify.contracts.cfg_formula import LIMIT
from scaffold.verify.formulas import relative, transition
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.stand_in_velocity import TwoBranches

_FORMULAS = {
    "u+s(c-u)": lambda c, u, s: u + s * (c - u),
    "c+s(c-u)": lambda c, u, s: c + s * (c - u),
    "c+(s-1)(c-u)": lambda c, u, s: c + (s - 1) * (c - u),
}


def run(subject: Any) -> Measured:
    """The mean of each step shows the velocity that training makes of known branches."""
    section, guided = subject.spec.get("guidance", {}), subject.recording["guided"]
    others = dict(section.get("defaults") or {}) | subject.recording["guidance"]
    several = "fewest" in section or (section.get("unconditional") or 1) > 1
    formula = _of_several(section, others) if several else _FORMULAS.get(section.get("formula") or "")
    if formula is None or not guided:
        raise NotDrivableError("the pipeline has no guidance scale" if not guided else "the formula is none of three")
    worst, where = 0.0, ""
    problems: list[str] = []
    for scale, sample in guided.items():
        settings = subject.settings(**{section["scale"]: scale})
        sigmas = [float(value) for value in subject.scheduler(settings).sigmas]
        trajectory = subject.trajectory_of([sample])
        for step in (0, 1, 3):
            inputs = subject.inputs_of(None, [sample], step=step, **{section["scale"]: scale})
            module = TwoBranches(subject, inputs[1])
            result = subject.scored(module, settings, inputs, trajectory, step)
            if not module.unconditional and scale != section.get("neutral", 1.0) and scale > section.get("above", 0.0):
                problems.append(f"with a scale of {scale:g}, step {step} is not guided")
            c = module.conditional[-1].double()
            velocity = formula(c, module.unconditional[-1].double(), scale) if module.unconditional else c
            levels = (sigmas[step], sigmas[step + 1], sigmas[1])
            mean, _ = transition("sde", trajectory[0][:, step], velocity, levels, settings.algo.noise_level)
            moving = subject.moved([sample])
            mean = mean if moving is None else torch.where(moving, mean, trajectory[0][:, step].double())
            difference = relative(result[1], mean)
            if difference > worst or difference != difference:
                worst, where = difference, f" with a scale of {scale:g} at step {step}"
    told = where if worst > LIMIT else f", {section['expression' if several else 'formula']}"
    return Measured(f"{worst:.1e} from the formula{told}", problems, worst, LIMIT, "relative", 2e-7)


def _of_several(section: dict[str, Any], others: dict[str, Any]) -> Callable[[Any, Any, float], Any]:
    """The expression of the spec, where there are other branches than one, or as many as the request decides."""
    code = compile(section["expression"], "scaffold.toml", "eval")
    known = {"__builtins__": {}, "len": len, "torch": torch}

    def formula(c: Any, u: Any, scale: float) -> Any:
        settings = {**others, section["scale"]: scale}
        return eval(code, known, {"conditional": c, "unconditional": u, "guidance": settings})

    return formula
