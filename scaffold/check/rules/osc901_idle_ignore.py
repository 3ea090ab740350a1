"""A suppression comment hides nothing, or does not say why.

A finding that is hidden without a reason has to be understood again by the next reader. A comment whose finding is gone
hides the next mistake of that kind on its line, and one that names no rule, or a rule that does not exist, hides
nothing although its author believes it does.

    model.load_state_dict(state, strict=False)  # omni-scaffold: ignore[OSC109]

Instead: name the rules and the reason, ``# omni-scaffold: ignore[OSC109] the head is trained from scratch``, and remove
the comment with its finding. ``omni-scaffold check --list-rules`` shows the identifiers.
"""

from __future__ import annotations

from scaffold.check.catalogue import all_rules, removed
from scaffold.check.example import Example
from scaffold.check.rule import Hit, Hits
from scaffold.check.suppression import Comments

ID = "OSC901"
NAME = "idle-ignore"
SEVERITY = "warning"
CHECKLIST = ()
SCOPE = "comments"
HELP = "write # omni-scaffold: ignore[OSC000] and why, with the rule's identifier; or remove it"


def check(comments: Comments) -> Hits:
    """Find comments without reason or rule, and identifiers of no rule, or that hid no finding of a rule that ran."""
    known = {rule.id for rule in all_rules()}
    for ignore in comments.ignores:
        if not ignore.ids:
            yield Hit(ignore.file, ignore.span, "the comment names no rule, so it hides nothing")
        elif not ignore.reason:
            yield Hit(ignore.file, ignore.span, "the comment does not say why the finding is hidden")
        for name, span in ignore.ids:
            if name not in known:
                yield Hit(ignore.file, span, removed(name) or f"there is no rule {name}")
            elif name in comments.running and name not in ignore.used:
                yield Hit(ignore.file, span, f"no finding of {name} is on this line")


_FLAG = "_supports_gradient_checkpointing = "
_SHIFT = "SCHEDULE_SHIFT = 3.0"
FAILING = (
    Example("no reason", model=(f"{_FLAG}True", f"{_FLAG}False  «# omni-scaffold: ignore[OSC104]»")),
    Example("no rule", common=(f"{_SHIFT}\n", f"{_SHIFT}  «# omni-scaffold: ignore just because»\n")),
    Example(
        "nothing to hide", model=(f"{_FLAG}True\n", f"{_FLAG}True  # omni-scaffold: ignore[«OSC104»] not supported\n")
    ),
    Example(
        "in a shell script",
        launch=("# Data: python3", "# omni-scaffold: ignore[«OSC501»] named by the caller\n# Data: python3"),
    ),
    Example("a slip", common=(f"{_SHIFT}\n", f"{_SHIFT}  # omni-scaffold: ignore[«OSC999»] measured\n")),
    Example("a rule that is gone", common=(f"{_SHIFT}\n", f"{_SHIFT}  # omni-scaffold: ignore[«OSC223»] measured\n")),
)
PASSING = (
    Example("rule and reason", model=(f"{_FLAG}True", f"{_FLAG}False  # omni-scaffold: ignore[OSC104] not yet")),
)
