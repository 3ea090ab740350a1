"""A suppression comment says neither why, nor perhaps what.

A finding that is hidden without a reason looks like one that nobody understood. Whoever reads it next has to find out
again.

    model.load_state_dict(state, strict=False)  # omni-scaffold: ignore[OSC109]

Instead: name the rules and the reason: ``# omni-scaffold: ignore[OSC109] the head is trained from scratch``.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.rule import Hit, Hits
from scaffold.check.suppression import Comments

ID = "OSC901"
NAME = "ignore-without-reason"
SEVERITY = "warning"
CHECKLIST = ()
SCOPE = "comments"
HELP = "write # omni-scaffold: ignore[OSC000] and why, with the rule's identifier"


def check(comments: Comments) -> Hits:
    """Find comments without reason or without identifiers."""
    for ignore in comments.ignores:
        if not ignore.ids:
            yield Hit(ignore.file, ignore.span, "the comment names no rule, so it hides nothing")
        elif not ignore.reason:
            yield Hit(ignore.file, ignore.span, "the comment does not say why the finding is hidden")


FAILING = (
    Example(
        "no reason",
        model=(
            "_supports_gradient_checkpointing = True",
            "_supports_gradient_checkpointing = False  «# omni-scaffold: ignore[OSC104]»",
        ),
    ),
    Example(
        "no rule", common=("SCHEDULE_SHIFT = 3.0\n", "SCHEDULE_SHIFT = 3.0  «# omni-scaffold: ignore just because»\n")
    ),
)
PASSING = (
    Example(
        "rule and reason",
        model=(
            "_supports_gradient_checkpointing = True",
            "_supports_gradient_checkpointing = False  # omni-scaffold: ignore[OSC104] it does not fit yet",
        ),
    ),
)
