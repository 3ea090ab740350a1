"""``noise_level`` or ``sde_type`` does not come from the configuration on one side.

Both decide how a step is sampled and how its log-prob is computed. The launch script sets them once for rollout and
training; a side that leaves one out, or writes its own value, computes log-probs of another process as soon as the
script says something else than that value.

    scheduler.sample_previous_step(…, noise_level=0.7)

Instead: ``model_config.algo.noise_level`` and ``.sde_type`` in training, the request's ``extra_args`` in the rollout.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import has_unpacking
from scaffold.check.model.dataflow import origin
from scaffold.check.model.project import Package
from scaffold.check.model.sde import Option, options, sampling_argument, sampling_calls
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC211"
NAME = "dropped-sde-option"
SEVERITY = "error"
CHECKLIST = ("pitfall 7",)
APPLIES = Applies(objective="policy_gradient")
HELP = "take it from model_config.algo in training and from the request's extra_args in the rollout"
OPTIONS = ("noise_level", "sde_type")


def check(package: Package) -> Hits:
    """Look at what each side gives to its scheduler steps."""
    for which in ("training", "rollout"):
        side = side_of(package, which)
        calls = list(sampling_calls(side))
        for name in OPTIONS:
            given = options(side, name)
            for function, call in calls:
                value = sampling_argument(call, name)
                if value is not None and not any(option.value is value for option in given):
                    given.append(Option(function, value, value, call))
                if value is None and not has_unpacking(call):
                    text = f"{name} is not given here; the {which} samples with the scheduler's default"
                    yield Hit(function.file, call.func, text)
            made = [origin(side, option.function, option.value) for option in given]
            for option, one in zip(given, made, strict=True):
                other = next(other for other in OPTIONS if other != name)
                if other in one.words and name not in one.words:
                    yield Hit(option.function.file, option.value, f"{name} of the {which} is read from {other}")
            if not given or any(name in one.words or one.open or not one.complete for one in made):
                continue
            for option, one in zip(given, made, strict=True):
                read = [n for _, _, n in one.nodes if isinstance(n, (ast.Call, ast.Subscript, ast.Attribute))]
                if not read:
                    text = f"{name} of the {which} does not come from the configuration"
                    yield Hit(option.function.file, option.value, text)


FAILING = (
    Example("the other option", training=("model_config.algo.noise_level", "«model_config.algo.sde_type»")),
    Example("zero in training", training=("model_config.algo.noise_level", "«0.0»")),
    Example("a literal in training", training=("model_config.algo.noise_level", "«0.7»")),
)
PASSING = (
    Example(
        "a fallback of its own name",
        training=("model_config.algo.sde_type", 'getattr(model_config.algo, "sde_type", "sde")'),
    ),
    Example(
        "from the configuration, by way of names",
        training=[
            ('all_timesteps"]\n', 'all_timesteps"]\n        algo = model_config.algo\n'),
            ("noise_level=model_config.algo", "noise_level=algo"),
        ],
    ),
)
