"""A suppression comment names a rule that does not exist.

It hides nothing, although its author believes it does.

Instead: use an identifier that ``omni-scaffold check --list-rules`` shows.
"""

from __future__ import annotations

from scaffold.check.catalogue import all_rules, removed
from scaffold.check.example import Example
from scaffold.check.rule import Hit, Hits
from scaffold.check.suppression import Comments

ID = "OSC903"
NAME = "unknown-ignored-rule"
SEVERITY = "warning"
CHECKLIST = ()
SCOPE = "comments"
HELP = "omni-scaffold check --list-rules shows the identifiers"


def check(comments: Comments) -> Hits:
    """Find identifiers of no rule."""
    known = {rule.id for rule in all_rules()}
    for ignore in comments.ignores:
        for name, span in ignore.ids:
            if name not in known:
                yield Hit(ignore.file, span, removed(name) or f"there is no rule {name}")


FAILING = (
    Example(
        "a slip",
        common=("SCHEDULE_SHIFT = 3.0\n", "SCHEDULE_SHIFT = 3.0  # omni-scaffold: ignore[«OSC999»] measured\n"),
    ),
    Example("a rule that is gone", common=("= 3.0\n", "= 3.0  # omni-scaffold: ignore[«OSC223»] measured\n")),
)
PASSING = (Example("no comment"),)
