"""A script sets the strategy of FSDP where the trainer overwrites it.

The engine's ``strategy`` is a copy of the actor's own: what stands in ``fsdp_config`` is replaced when the workers start.
A script that asks for FSDP2 there trains with FSDP1, with all that differs: precision of inputs, memory, and whether
frozen and trained parameters may share a unit. Nothing says so.

    actor_rollout_ref.actor.fsdp_config.strategy=fsdp2

Instead: set ``actor_rollout_ref.actor.strategy``.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.project import Project
from scaffold.check.rule import Hit, Hits

ID = "OSC522"
NAME = "overwritten-strategy"
SEVERITY = "error"
CHECKLIST = ("W3",)
SCOPE = "project"
_ACTOR = "actor_rollout_ref.actor."
_DEFAULT = "fsdp"
_WORDS = (b"fsdp_config", b"--config-", b"-cn")


def check(project: Project) -> Hits:
    """Compare both keys in all scripts."""
    for script in (*project.example_scripts, *project.e2e_scripts):
        if not any(word in script.data for word in _WORDS):
            continue  # reading the words of every script takes longer than all that is asked of them
        inner, own = (script.override(f"{_ACTOR}{key}") for key in ("fsdp_config.strategy", "strategy"))
        if inner is None or not isinstance(inner.value, str):
            continue
        value = own.value if own is not None else _DEFAULT
        if isinstance(value, str) and value != inner.value:
            text = f"the trainer replaces this by {_ACTOR}strategy, which is {value!r}"
            yield Hit(script, inner.span, text, f"set {_ACTOR}strategy={inner.value}")


FAILING = (
    Example(
        "alone",
        launch=('model[@]}" \\\n', 'model[@]}" \\\n    «actor_rollout_ref.actor.fsdp_config.strategy=fsdp2» \\\n'),
    ),
    Example(
        "beside another one",
        launch=(
            'model[@]}" \\\n',
            'model[@]}" \\\n'
            "    actor_rollout_ref.actor.strategy=fsdp \\\n    «actor_rollout_ref.actor.fsdp_config.strategy=fsdp2» \\\n",
        ),
    ),
)
PASSING = (
    Example(
        "the actor's own", launch=('model[@]}" \\\n', 'model[@]}" \\\n    actor_rollout_ref.actor.strategy=fsdp2 \\\n')
    ),
    Example(
        "both alike",
        launch=(
            'model[@]}" \\\n',
            'model[@]}" \\\n'
            "    actor_rollout_ref.actor.strategy=fsdp2 \\\n    actor_rollout_ref.actor.fsdp_config.strategy=fsdp2 \\\n",
        ),
    ),
)
