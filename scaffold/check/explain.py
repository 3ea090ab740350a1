"""``--explain`` and ``--list-rules``."""

from __future__ import annotations

from scaffold.check.catalogue import all_rules, find_rule
from scaffold.check.example import BASE, base_tree, check_files
from scaffold.check.rule import Rule
from scaffold.plan.change import FileState
from scaffold.plan.unified import difference

_FIXES = {"safe": "a safe fix (--fix)", "unsafe": "an unsafe fix (--unsafe-fixes)"}


def explain(name: str) -> str:
    """Return what there is to know about a rule.

    Raises:
        ScaffoldError: there is no such rule.
    """
    rule = find_rule(name)
    stands = f" · stands for {', '.join(rule.checklist)}" if rule.checklist else ""
    fix = f" · has {_FIXES[rule.safety]}" if rule.fix is not None else ""
    head = f"{rule.id} {rule.name}\n{rule.severity} · {rule.group}{stands}{fix}"
    return f"{head}\n\n{rule.documentation.strip()}\n\n{_example(rule)}"


def _example(rule: Rule) -> str:
    """Return the first failing example, as the difference from an integration that is right."""

    example = rule.failing[0]
    files, _ = example.tree()
    base = base_tree(BASE)
    # What comments are about depends on the other rules.
    findings = check_files(files, [] if rule.scope == "comments" else [rule.id])
    message = next((finding.message for finding in findings if finding.rule == rule.id), "nothing is found")
    lines = [f"Example, {example.title}: “{message}”.", ""]
    for path in sorted(set(files) | set(base)):
        before, after = base.get(path), files.get(path)
        if before == after or not isinstance(after, str) or len(after) - len(before or "") > 4000:
            lines += [f"# {path} {'is not there' if after is None else 'is too long to show'}"] * (before != after)
            continue
        old = FileState.text(before) if before is not None else None
        shown = difference(path, old, FileState.text(after), context=1).splitlines()
        heads = ("diff --git", "new file", "--- ")
        lines += [line[:160].replace("\0", "\\0") for line in shown if not line.startswith(heads)]
    return "\n".join(lines) + "\n"


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
