"""``--explain`` and ``--list-rules``."""

from __future__ import annotations

from scaffold.check.catalogue import all_rules, find_rule
from scaffold.check.rule import Rule

_FIXES = {"safe": "a safe fix (--fix)", "unsafe": "an unsafe fix (--unsafe-fixes)"}


def explain(name: str) -> str:
    """Return what there is to know about a rule.

    Raises:
        ScaffoldError: there is no such rule.
    """
    rule = find_rule(name)
    stands = f" · stands for {', '.join(rule.checklist)}" if rule.checklist else ""
    fix = f" · has {_FIXES[rule.safety]}" if rule.fix is not None else ""
    return f"{rule.id} {rule.name}\n{rule.severity} · {rule.group}{stands}{fix}\n\n{rule.documentation.strip()}\n"


def list_rules() -> str:
    """Return one line a rule, under the heading of its group."""
    lines: list[str] = []
    group = None
    width = max(len(rule.name) for rule in all_rules())
    for rule in all_rules():
        if rule.group != group:
            lines += [""] * (group is not None) + [rule.group]
            group = rule.group
        lines.append(_line(rule, width))
    return "\n".join(lines) + "\n"


def _line(rule: Rule, width: int) -> str:
    mark = {"safe": "*", "unsafe": "~"}[rule.safety] if rule.fix is not None else " "
    return f"  {rule.id} {mark} {rule.severity:<7}  {rule.name:<{width}}  {', '.join(rule.checklist)}".rstrip()
