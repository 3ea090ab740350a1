"""The rules as the rendered training module has them, read from its text."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.remap.pattern import literal
from scaffold.remap.rule import Rule

PATTERNED = "RULES"
_TABLES = ("KEY_MAP", "IGNORED_KEYS", PATTERNED)


@dataclass(frozen=True)
class Rendered:
    """The rules that decide in a rendered module, first match first.

    Attributes:
        rules: the rules.
        table: the table that most of them stand in, ``KEY_MAP`` or ``RULES``.
        starts: where each table begins, by its name.
        lines: where each rule stands, by its label.
        standing: what all rows do, those that another one hides among them (`essence`).
    """

    rules: tuple[Rule, ...]
    table: str
    starts: Mapping[str, int]
    lines: Mapping[str, int]
    standing: frozenset[tuple[Any, ...]]

    def table_of(self, rule: Rule) -> str:
        """The name of the table that a rule belongs into."""
        return PATTERNED if self.table == PATTERNED else _TABLES[rule.op == "drop"]


def rendered_rules(tree: ast.Module) -> Rendered | None:
    """Return the rules of a rendered module; None where they cannot be read.

    A module with ``RULES`` holds them as they are. One with ``KEY_MAP`` and ``IGNORED_KEYS`` holds prefixes and whole
    names, of which the longest that fits decides.
    """
    tables: dict[str, list[tuple[Any, int]]] = {}
    starts: dict[str, int] = {}
    for node in tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if isinstance(target, ast.Name) and target.id in _TABLES and isinstance(node.value, (ast.Tuple, ast.List)):
            try:
                tables[target.id] = [(ast.literal_eval(row), row.lineno) for row in node.value.elts]
                starts[target.id] = node.lineno
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
    try:
        if PATTERNED in tables:
            found = [(_rule(*row), line) for row, line in tables[PATTERNED]]
            standing = frozenset(essence(rule) for rule, _ in found)
        elif {"KEY_MAP", "IGNORED_KEYS"} <= tables.keys():
            found = [(Rule(literal(source), literal(target)), line) for (source, target), line in tables["KEY_MAP"]]
            found += [
                (Rule(literal(source), None, "drop", reason), line) for (source, reason), line in tables["IGNORED_KEYS"]
            ]
            standing = frozenset(essence(rule) for rule, _ in found)
            # As the code does: of two rows for one name the later one counts, and the longest name that fits decides.
            found = sorted({entry[0].label: entry for entry in found}.values(), key=lambda entry: -len(entry[0].label))
        else:
            return None
    except (TypeError, ValueError, AttributeError, ScaffoldError):
        return None
    table = PATTERNED if PATTERNED in tables else "KEY_MAP"
    lines = {rule.label: line for rule, line in reversed(found)}
    return Rendered(tuple(rule for rule, _ in found), table, starts, lines, standing)


def _rule(op: Any, sources: Any, targets: Any, axis: Any, sizes: Any, reason: Any) -> Rule:
    if op == "join":
        return Rule(None, targets[0], op, None, tuple(sources), axis, tuple(sizes) if sizes else None)
    if op == "split":
        return Rule(sources[0], None, op, None, tuple(targets), axis)
    return Rule(sources[0], targets[0] if targets else None, op, reason if op == "drop" else None)


def differing(module: tuple[Rule, ...], spec: tuple[Rule, ...]) -> tuple[list[Rule], list[Rule]]:
    """Return the rules that only the module has, and those that only the spec has; their order does not count."""
    here, there = {essence(rule) for rule in module}, {essence(rule) for rule in spec}
    return (
        [rule for rule in module if essence(rule) not in there],
        [rule for rule in spec if essence(rule) not in here],
    )


def essence(rule: Rule) -> tuple[Any, ...]:
    """Return what a rule does; the reason of a rename is for readers only."""
    return rule.op, rule.sources, rule.targets, rule.axis, rule.sizes, rule.reason if rule.op == "drop" else None
