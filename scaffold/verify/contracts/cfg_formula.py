"""Guidance and each renorm against the formula in float64."""

from __future__ import annotations

import itertools
from typing import Any

from scaffold.verify.formulas import guided, time_of, transition, worst_relative
from scaffold.verify.measured import Attempts, Measured, NotDrivableError
from scaffold.verify.subject.guidance import Guidance, as_velocity, guidance, names_read, predicts_clean, step
from scaffold.verify.subject.rollout import OwnLoopError

ID = "cfg-formula"
TITLE = "guidance, its interval and each renorm follow the formula, per sample"
PITFALLS = (29, 41)
# Float32 against float64: 2e-7 measured; a wrong scale, clamp or norm gives 1e-3 and more.
LIMIT = 1e-5
RIGHT = ("u + s (c - u)", "c + s (c - u)")
RENORMS = ("global", "channel", "text_channel")


def run(subject: Any) -> Measured:
    """Every renorm under several scales, clamps, intervals and steps; the mean of the step shows the velocity."""
    try:
        found, clean = guidance(subject), predicts_clean(subject)
    except NotDrivableError as reason:
        return _either_form(subject, reason)
    if clean and "renorm_type" in found.names:
        raise NotDrivableError("what is renormed, a prediction or the velocity that follows from it, is not known")
    worst, where, tried, refused = 0.0, "", set(), set()
    attempts = Attempts()
    for changes, index in _cases(found, [float(value) for value in subject.scheduler(subject.settings()).sigmas]):
        values = found.values(**changes)
        settings = subject.settings(**found.settings(**changes))
        stepped = attempts.of(f"with {changes}", _stepped, subject, settings, index, found)
        if stepped is None:
            continue
        if not stepped:
            refused.add(str(values["renorm_type"]))
            continue
        module, latents, _, result = stepped
        difference = _difference(subject, settings, module, latents, result, values, index, clean)
        tried.add(str(values["renorm_type"]))
        if difference > worst or difference != difference:
            worst, where = difference, f" with {changes} at step {index}"
    if not tried and not attempts.problems:
        raise NotDrivableError(f"the training adapter refuses every renorm of {', '.join(RENORMS)}")
    left = f"; refused: {', '.join(sorted(refused))}" if refused else ""
    return Measured(
        f"renorms {', '.join(sorted(tried))}: {worst:.1e} from the formula{where if worst > LIMIT else ''}{left}",
        attempts.problems,
        worst,
        LIMIT,
        "relative",
        2e-7,
    )


def _either_form(subject: Any, reason: NotDrivableError) -> Measured:
    """Accept, if the pipeline's values are unknown, either ``u + s (c - u)`` or ``c + s (c - u)``.

    Raises:
        NotDrivableError: the guided velocity is neither, nor one that is certainly wrong; pipelines renorm it too.
    """
    names = names_read(subject)
    known = "unknown" not in subject.job["upstream"] and not isinstance(reason, OwnLoopError)
    if set(names) != {"text_scale"} or known:
        raise reason
    fitting: dict[str, float] = {}
    for scale in (1.7, 3.0):
        settings = subject.settings(**{names["text_scale"]: scale})
        module, latents, _, result = step(subject, settings, 1)
        if not module.unconditional:
            raise NotDrivableError(f"{names['text_scale']}={scale} switches no guidance on")
        if not module.conditional:
            raise NotDrivableError("both branches get the same inputs; see cfg-branches")
        c, u = module.conditional[-1].double(), module.unconditional[-1].double()
        first, second = (float(value) for value in subject.scheduler(settings).sigmas[1:3])
        for form, velocity in _forms(c, u, scale).items():
            means = [
                transition("sde", latents[:, 1], sign * velocity, (first, second, first), 0.7)[0] for sign in (1, -1)
            ]
            fitting[form] = max(fitting.get(form, 0.0), min(worst_relative(result[1], mean) for mean in means))
    form = min(fitting, key=lambda name: fitting[name])
    if not fitting[form] <= LIMIT:
        raise NotDrivableError(f"{reason}; the guided velocity is neither {' nor '.join(RIGHT)}")
    problems = [] if form in RIGHT else [f"the velocity is {form}"]
    return Measured(f"{fitting[form]:.1e} from {form}", problems, fitting[form], LIMIT, "relative", 2e-7)


def _forms(c: Any, u: Any, scale: float) -> dict[str, Any]:
    return {
        RIGHT[0]: u + scale * (c - u),
        RIGHT[1]: c + scale * (c - u),
        "c + s (u - c), the branches exchanged": c + scale * (u - c),
        "u + s (u - c), the branches exchanged": u + scale * (u - c),
        "the conditional one, whatever the scale": c,
        "the unconditional one, whatever the scale": u,
    }


def _stepped(subject: Any, settings: Any, index: int, found: Guidance) -> tuple[Any, ...]:
    """Return one step over two known branches; empty if the adapter refuses the renorm."""
    try:
        return step(subject, settings, index)
    except (NotImplementedError, ValueError) as error:
        if "renorm" not in str(error) and found.names.get("renorm_type", "renorm") not in str(error):
            raise
        return ()


def _cases(found: Guidance, sigmas: list[float]) -> list[tuple[dict[str, Any], int]]:
    cases: list[dict[str, Any]] = [{}, {"text_scale": 1.0}, {"text_scale": 1.7}]
    if "interval" in found.names:
        cases += [
            {"interval": (0.9, 1.0)},
            {"interval": [0.9, 1.0]},
            {"interval": [0.0, 1.0]},
            {"interval": (0.0, 0.5)},
            # Whether the ends belong to it.
            {"interval": (time_of(sigmas[1], found.values()), 1.0)},
            {"interval": (0.0, time_of(sigmas[1], found.values()))},
        ]
    if "renorm_type" in found.names:
        scales = [{}, {"image_scale": 1.5}] if "image_scale" in found.names else [{}]
        minima = [{}, {"renorm_min": 0.8}] if "renorm_min" in found.names else [{}]
        for kind, scale, minimum in itertools.product(RENORMS, scales, minima):
            cases.append({"renorm_type": kind, **scale, **minimum})
        # Shorter than the conditional velocity: nothing is scaled up.
        cases += [{"renorm_type": kind, "text_scale": 1.7} for kind in RENORMS]
    elif "image_scale" in found.names:
        cases.append({"image_scale": 1.5})
    return [(case, index) for case in cases for index in (0, 1, 3)]


def _difference(
    subject: Any, settings: Any, module: Any, latents: Any, result: Any, values: Any, index: int, clean: bool
) -> float:
    sigma, following = (float(subject.scheduler(settings).sigmas[index + i]) for i in (0, 1))
    second = float(subject.scheduler(settings).sigmas[1])
    conditional = module.conditional[-1]
    # An adapter may omit the second branch only if guidance is off and the branch has no effect.
    without = module.unconditional[-1] if module.unconditional else conditional + 1
    velocity = guided(conditional, without, sigma, values, 1e-8, *module.image_free[-1:])
    velocity = as_velocity(velocity, latents[:, index], sigma, clean)
    mean, _ = transition("sde", latents[:, index], velocity, (sigma, following, second), settings.algo.noise_level)
    return worst_relative(result[1], mean)


def run_recorded(subject: Any) -> Measured:
    """Guidance is the pipeline's own; a rollout whose package has a formula of it compares both at each step."""
    raise NotDrivableError("guidance is the pipeline's own: level rollout prints its formula")
