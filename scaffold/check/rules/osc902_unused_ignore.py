"""A suppression comment hides nothing.

The finding it was written for is gone, or stands on another line. Left in place, the comment hides the next mistake
of that kind on its line.

Instead: remove the identifier, or the comment.
"""

from __future__ import annotations

from scaffold.check.catalogue import all_rules
from scaffold.check.example import Example
from scaffold.check.rule import Hit, Hits
from scaffold.check.suppression import Comments

ID = "OSC902"
NAME = "unused-ignore"
SEVERITY = "warning"
CHECKLIST = ()
SCOPE = "comments"
HELP = "remove it"


def check(comments: Comments) -> Hits:
    """Find identifiers that hid no finding, of rules that did run."""
    known = {rule.id for rule in all_rules()}
    for ignore in comments.ignores:
        for name, span in ignore.ids:
            if name in known and name in comments.running and name not in ignore.used:
                yield Hit(ignore.file, span, f"no finding of {name} is on this line")


FAILING = (
    Example(
        "nothing to hide",
        model=(
            "_supports_gradient_checkpointing = True\n",
            "_supports_gradient_checkpointing = True  # omni-scaffold: ignore[«OSC104»] it was not supported\n",
        ),
    ),
    Example(
        "in a shell script",
        launch=("# Data: python3", "# omni-scaffold: ignore[«OSC506»] named by the caller\n# Data: python3"),
    ),
)
PASSING = (
    Example(
        "it hides a finding",
        model=(
            "_supports_gradient_checkpointing = True",
            "_supports_gradient_checkpointing = False  # omni-scaffold: ignore[OSC104] it does not fit yet",
        ),
    ),
)
