"""What a person edits: the keys of ``scaffold.toml``, in its order, with what each does and what it may be.

Everything else that a spec holds is a fact, which stands in the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scaffold.algorithms import ALGORITHMS

DTYPES = ("bfloat16", "float16", "float32")
SDE_TYPES = ("sde", "cps", "dance_sde")
LARGEST_SIDE = 1 << 14


@dataclass(frozen=True)
class Knob:
    """A key of ``scaffold.toml``.

    Attributes:
        says: the comment beside it: what it does, and its unit.
        fits: whether a value may stand there.
        wanted: what errors say it must be.
        unset: what happens without a value; None where it must have one.
    """

    says: str
    fits: Callable[[Any], bool]
    wanted: str
    unset: str | None = None


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def _count(value: Any) -> bool:
    return _whole(value) and 0 < value < 10**9


def _several(value: Any) -> bool:
    return _count(value) and value > 1


def _rank(value: Any) -> bool:
    return _whole(value) and 0 <= value <= 1 << 14


def _side(value: Any) -> bool:
    return _count(value) and value <= LARGEST_SIDE


def _positive(value: Any) -> bool:
    return _number(value) and value > 0


def _decay(value: Any) -> bool:
    return _number(value) and value >= 0


def _clip(value: Any) -> bool:
    return _number(value) and 0 < value < 1


def _window(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_whole, value)) and 0 <= value[0] < value[1]


def _names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(entry, str) for entry in value)


def _table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_number, value))


def _settings(value: Any) -> bool:
    """Numbers, flags, words and lists of numbers by name."""
    return isinstance(value, Mapping) and all(
        isinstance(entry, bool | str)
        or _number(entry)
        or (isinstance(entry, list | tuple) and all(map(_number, entry)))
        for entry in value.values()
    )


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _algorithms(value: Any) -> bool:
    return _names(value) and len(value) == len(set(value)) > 0 and all(name in ALGORITHMS for name in value)


def _one_of(*names: str) -> Callable[[Any], bool]:
    return lambda value: value in names


_COUNT = "a positive whole number"
_KINDS, _DTYPES = (", ".join(names[:-1]) + f" or {names[-1]}" for names in (SDE_TYPES, DTYPES))
_SIDE = f"a whole number of pixels from 1 to {LARGEST_SIDE}"
_GUIDANCE = Knob(
    "settings of guidance that a request brings", _settings, "a table of names with numbers, flags or words"
)
KNOBS: Mapping[str, Knob] = {
    "names.package": Knob("the package whose values these are; not to be changed", _text, "a text"),
    "names.display": Knob("what documentation calls the model", _text, "a text"),
    "names.repository": Knob("released checkpoint on the Hub, for the README", _text, "a text", "README asks for it"),
    "schedule.shift": Knob(
        "time shift of the noise levels, in rollout and training", _positive, "a positive number", "none is applied"
    ),
    "cfg.defaults": _GUIDANCE,
    "guidance.defaults": _GUIDANCE,
    "lora.rank": Knob("columns of an adapter; 0 trains all parameters", _rank, "a whole number, 0 for no adapter"),
    "lora.alpha": Knob("an adapter's update is scaled by alpha / rank", _count, "a positive integer"),
    "lora.targets": Knob("linear layers that get an adapter, by the end of their names", _names, "a list of names"),
    "lora.merge": Knob(
        "true: the trainer merges the adapter and pushes all weights; false: the adapter alone is sent",
        _flag,
        "true or false",
    ),
    "recipe.algorithms": Knob(
        "what the adapters are registered for beside flow_grpo; scripts train by the first, or by ALGORITHM",
        _algorithms,
        f"a list of {', '.join(ALGORITHMS)}",
    ),
    "recipe.num_inference_steps": Knob(
        "denoising steps of a rollout", _count, "a positive integer", "the script asks for STEPS"
    ),
    "recipe.height": Knob("pixels", _side, _SIDE, "the script asks for HEIGHT, or takes the pipeline's own"),
    "recipe.width": Knob("pixels", _side, _SIDE, "the script asks for WIDTH, or takes the pipeline's own"),
    "recipe.num_frames": Knob("frames of a video", _count, _COUNT, "the script asks for NUM_FRAMES"),
    "recipe.noise_level": Knob("noise of a stochastic step, 0 for none", _decay, "a number from 0"),
    "recipe.sde_type": Knob(
        "rule of a stochastic step: sde, cps or dance_sde", _one_of(*SDE_TYPES), "sde, cps or dance_sde"
    ),
    "recipe.sde_window_size": Knob("stochastic steps of a rollout, the ones that are trained", _count, _COUNT),
    "recipe.sde_window_range": Knob(
        "steps between which they are drawn, the last not included", _window, "two steps, the first before the last"
    ),
    "recipe.max_prompt_length": Knob("tokens of a prompt; longer ones are left out", _count, "a positive integer"),
    "recipe.gpus": Knob("GPUs of the one machine", _count, _COUNT),
    "recipe.tensor_parallel": Knob("GPUs that share one engine of the rollout; a divisor of the GPUs", _count, _COUNT),
    "recipe.offload": Knob("true keeps training's weights on the CPU during rollouts: slow", _flag, "true or false"),
    "recipe.reward_model": Knob("model that scores the images, from the Hub", _text, "a text"),
    "recipe.reward_gpus": Knob("tensor parallel size of that model", _count, _COUNT),
    "recipe.reward_file": Knob("file of a reward function of your own", _text, "a path"),
    "recipe.reward_function": Knob("its name in that file", _text, "a name"),
    "recipe.train_batch_size": Knob("prompts of a step", _count, _COUNT),
    "recipe.group_size": Knob("images of a prompt, which are compared", _several, "a whole number from 2"),
    "recipe.mini_batch_size": Knob("prompts of an update of the weights", _count, _COUNT),
    "recipe.micro_batch_size": Knob("images of a forward pass on one GPU", _count, _COUNT),
    "recipe.learning_rate": Knob("of AdamW", _positive, "a positive number"),
    "recipe.weight_decay": Knob("of AdamW", _decay, "a number from 0"),
    "recipe.clip_ratio": Knob("a log-prob ratio is cut at 1 - it and 1 + it", _clip, "a number between 0 and 1"),
    "recipe.model_dtype": Knob("dtype of the weights", _one_of(*DTYPES), _DTYPES),
    "recipe.lora_dtype": Knob("dtype of the adapter and its optimizer", _one_of(*DTYPES), _DTYPES),
    "recipe.validation_steps": Knob("denoising steps of a validation, which has no noise", _count, _COUNT),
    "recipe.total_steps": Knob("steps of training", _count, _COUNT),
    "recipe.epochs": Knob("passes over the data, should they end first", _count, _COUNT),
    "recipe.save_every": Knob("steps between two saved checkpoints", _count, _COUNT),
    "deploy.engine": Knob("settings of the engine", _table, "a table"),
    "deploy.stage": Knob("settings of the engine's one stage", _table, "a table"),
    "deploy.sampling": Knob("what a request has that says nothing else", _table, "a table"),
}
# Shown as a table of its own, a row for each setting.
ROWS = frozenset({"cfg.defaults", "guidance.defaults"})
# Knobs of a composed package that change nothing in a ported one: there the pipeline's own schedule is made.
COMPOSED_ONLY = frozenset({"schedule.shift"})


def is_knob(name: str, *, ported: bool) -> bool:
    """Whether a person edits ``section.key`` of such a package."""
    return name in KNOBS and not (ported and name in COMPOSED_ONLY)
