"""The rules as the rendered training module has them, read from its text."""

from __future__ import annotations

import ast
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.remap.pattern import literal
from scaffold.remap.rule import Rule

_TABLES = ("KEY_MAP", "IGNORED_KEYS", "RULES")


def rendered_rules(tree: ast.Module) -> tuple[Rule, ...] | None:
    """Return the rules that decide in a rendered module, first match first; None where they cannot be read.

    A module with ``RULES`` holds them as they are. One with ``KEY_MAP`` and ``IGNORED_KEYS`` holds prefixes and whole
    names, of which the longest that fits decides.
    """
    tables: dict[str, Any] = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if isinstance(target, ast.Name) and target.id in _TABLES:
            try:
                tables[target.id] = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
    try:
        if "RULES" in tables:
            return tuple(_rule(*row) for row in tables["RULES"])
        if not {"KEY_MAP", "IGNORED_KEYS"} <= tables.keys():
            return None
        rules = [Rule(literal(source), literal(target)) for source, target in tables["KEY_MAP"]]
        rules += [Rule(literal(source), None, "drop", reason) for source, reason in tables["IGNORED_KEYS"]]
        return tuple(sorted(rules, key=lambda rule: -len(rule.label)))
    except (TypeError, ValueError, AttributeError, ScaffoldError):
        return None


def _rule(op: Any, sources: Any, targets: Any, axis: Any, sizes: Any, reason: Any) -> Rule:
    if op == "join":
        return Rule(None, targets[0], op, None, tuple(sources), axis, tuple(sizes) if sizes else None)
    if op == "split":
        return Rule(sources[0], None, op, None, tuple(targets), axis)
    return Rule(sources[0], targets[0] if targets else None, op, reason if op == "drop" else None)


def differing(module: tuple[Rule, ...], spec: tuple[Rule, ...]) -> list[str]:
    """Return the sources of rules that only one side has; their order is the proof's business."""
    here, there = {_essence(rule): rule.label for rule in module}, {_essence(rule): rule.label for rule in spec}
    return [label for essence, label in {**there, **here}.items() if (essence in here) != (essence in there)]


def _essence(rule: Rule) -> tuple[Any, ...]:
    """Return what a rule does; the reason of a rename is for readers only."""
    return rule.op, rule.sources, rule.targets, rule.axis, rule.sizes, rule.reason if rule.op == "drop" else None
