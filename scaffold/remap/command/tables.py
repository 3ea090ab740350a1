"""The rules in a package's code beside those of its ``scaffold.toml``: which will run, and where they part."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass

from scaffold.digest import sha256_hex
from scaffold.new import package_path
from scaffold.remap.command.package import Package, source_text
from scaffold.remap.command.rendered import PATTERNED, Rendered, differing, essence, rendered_rules
from scaffold.remap.key_map import KeyMap
from scaffold.remap.pattern import unescaped
from scaffold.remap.rule import Rule

SHOWN = 3


@dataclass(frozen=True)
class Tables:
    """What is proved, and why that is not what ``scaffold.toml`` and the code both say.

    Attributes:
        key_map: the rules of the code; those of the spec where it was edited and the code is as it was rendered.
        cause: where the two part, in one line; None where they agree.
        edited: whether the code was edited, so that its rules are the ones that run.
        restore: what to do for the code to have the rules of the spec again.
        readable: whether the code has tables that can be read; without them ``key_map`` is that of the spec.
    """

    key_map: KeyMap
    cause: str | None = None
    edited: bool = False
    restore: str = ""
    readable: bool = True


def tables_of(package: Package, tree: ast.Module) -> Tables:
    """Compare the tables of the training module with the rules of the spec."""
    spec = package.key_map()
    where = package.module_path.name
    code = rendered_rules(tree)
    if code is None:
        restore = f"write KEY_MAP and IGNORED_KEYS, or RULES, as plain tables into {where} again"
        return Tables(
            spec, f"{where} has no tables of rules that can be read; these counts are scaffold.toml's", True, restore
        )
    mine, theirs = differing(code.rules, spec.rules)
    moved = code.table == PATTERNED and [*map(essence, code.rules)] != [*map(essence, spec.rules)]
    if not mine and not theirs and not moved:
        return Tables(spec)
    if _as_rendered(package):
        what = _rows(theirs or mine, code) or "the order of the rules"
        return Tables(spec, f"{where} is not rendered from these rules yet: {what} {'is' if theirs else 'is gone'} new")
    lost = [rule for rule in theirs if essence(rule) not in code.standing]
    start = code.starts[code.table_of(lost[0]) if lost else code.table]
    at = code.lines.get(mine[0].label if mine else "", start)
    if not mine and not theirs:
        cause, restore = "its rules stand in another order than in scaffold.toml", "put them in that order"
    elif not mine:
        cause, restore = (
            f"scaffold.toml has {_rows(theirs, code)}, which is missing here",
            f"put {_by_table(lost or theirs, code, 'back into')}",
        )
    elif not theirs:
        cause, restore = f"{_rows(mine, code)} is no rule of scaffold.toml", f"take {_rows(mine, code)} out"
    elif not lost:
        cause = f"{_rows(mine, code)} stands here and hides {_rows(theirs, code)} of scaffold.toml"
        restore = f"take {_by_table(mine, code, 'out of')}"
    elif len({code.table_of(rule) for rule in (*mine, *lost)}) > 1:
        cause = f"{_rows(mine, code)} stands here, and {_rows(theirs, code)} in scaffold.toml"
        restore = f"take {_by_table(mine, code, 'out of')}, and put {_by_table(lost, code, 'back into')}"
    else:
        cause = f"{_rows(mine, code)} stands here, and {_rows(theirs, code)} in scaffold.toml"
        restore = f"put {_rows(theirs, code)} back"
    key_map = KeyMap(tuple(_with_reasons(code.rules, spec.rules)))
    return Tables(key_map, f"{where}:{at}: {cause}", True, f"{restore} in {where}, line {at}")


def _as_rendered(package: Package) -> bool:
    """Whether the module is what was rendered, so that it is the spec that somebody changed."""
    path = f"{package_path(package.spec)}/{package.module_path.name}"
    text = source_text(package.module_path).replace("\r\n", "\n")
    return package.spec.files.get(path) == sha256_hex(text)


def _with_reasons(code: tuple[Rule, ...], spec: tuple[Rule, ...]) -> list[Rule]:
    """Return the rules of the code; what the spec says of the same rule for readers goes with it."""
    said = {essence(rule): rule for rule in spec}
    return [said.get(essence(rule), rule) for rule in code]


def _rows(rules: list[Rule], code: Rendered) -> str:
    more = f" and {len(rules) - SHOWN} more" if len(rules) > SHOWN else ""
    return ", ".join(_row(rule, code) for rule in rules[:SHOWN]) + more


def _by_table(rules: list[Rule], code: Rendered, verb: str) -> str:
    """Return the rows with the table that they come out of or go into."""
    tables = dict.fromkeys(code.table_of(rule) for rule in rules)
    parts = [(table, [rule for rule in rules if code.table_of(rule) == table]) for table in tables]
    return " and ".join(f"{_rows(mine, code)} {verb} {table}" for table, mine in parts)


def _row(rule: Rule, code: Rendered) -> str:
    """Return a rule as it stands in the table."""
    if code.table == PATTERNED:
        reason = rule.reason if rule.op == "drop" else None
        return repr((rule.op, rule.sources, rule.targets, rule.axis, rule.sizes, reason))
    second = rule.reason if rule.op == "drop" else unescaped(rule.target or "")
    return f"({json.dumps(unescaped(rule.source or ''))}, {json.dumps(second, ensure_ascii=False)})"
