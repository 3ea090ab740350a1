"""The first request to a tiny checkpoint: finds out what else it takes to go through."""

from __future__ import annotations

import traceback
from dataclasses import fields, replace
from typing import Any

from scaffold.verify.rollout.engine_side.engine import Engine
from scaffold.verify.rollout.engine_side.prompts import TEXTS, PromptForm
from scaffold.verify.rollout.engine_side.recipe import Recipe
from scaffold.verify.rollout.engine_side.tiny.checkpoint import Growing
from scaffold.verify.rollout.engine_side.tiny.components import NoTinyModelError

TRIALS = 8
LARGEST = 256  # pixels a side
# What a rollout adapter says of a pipeline that leaves its latents as they are in the first step.
_BEHIND = "begin sde_window_range behind it"


def first_request(
    engine: Engine, checkpoint: Growing, recipe: Recipe, facts: dict[str, Any], prompts: PromptForm
) -> Recipe:
    """Send requests until one goes through: bare, then with what the pipeline takes beside a prompt, then larger.

    Args:
        engine: its ``media`` are set where a request needs them.
        checkpoint: changed where an error says what the pipeline wants.
        recipe: what is asked for.
        facts: ``frames``, ``media``, ``required`` of these, ``references`` (no request goes without media) and the
            request that ``scaffold.toml`` gives, see ``ported_facts``.
        prompts: make the ids of a text.

    Returns:
        The recipe with the frames of a video, what ``scaffold.toml`` gives, and the size that went through.

    Raises:
        NoTinyModelError: none goes through; the text has the last reason.
    """
    given = facts["given"]["request"]
    known = {entry.name for entry in fields(recipe)}
    values = {name: value for name, value in given.items() if name not in known}
    recipe = replace(
        recipe,
        brought=values,
        **{"num_frames": facts["frames"], **{name: given[name] for name in given.keys() & known}},
    )
    ids, kinds = prompts.chat(TEXTS[0]), facts["media"]
    for _ in range(TRIALS):
        errors: list[Exception] = []
        sampling = {**recipe.sampling(7), "num_inference_steps": 2}
        if recipe.sde_window_range is not None:
            sampling |= {"sde_window_size": 1, "sde_window_range": [1, 2]}
        needed = tuple(kind for kind in kinds if kind in facts.get("required", ()))
        for brought in dict.fromkeys([tuple(kinds)] if facts.get("references") else [(), needed, tuple(kinds)]):
            engine.media = brought
            try:
                engine.generate(ids, sampling, ids)
                return recipe
            except Exception as error:
                errors.append(error)
        if checkpoint.fit(errors[-1]):
            engine.load()
        elif _BEHIND in str(errors[-1]) and recipe.sde_window_range is None:
            steps = recipe.num_inference_steps
            recipe = replace(recipe, sde_window_size=steps - 1, sde_window_range=(1, steps))
        elif not given.keys() & {"height", "width"} and recipe.height < LARGEST:
            recipe = replace(recipe, height=2 * recipe.height, width=2 * recipe.width)
        else:
            break
    for earlier in errors[:-1]:
        traceback.print_exception(earlier)
    told = [" ".join(f"{type(found).__name__}: {found}".split())[:300] for found in errors]
    beside = f"; with {', '.join(kinds)}: {told[-1]}" if len(told) > 1 else ""
    raise NoTinyModelError(
        f"no request goes through a tiny checkpoint: {told[0]}{beside}; values of [verify] in scaffold.toml go first"
    ) from errors[-1]
