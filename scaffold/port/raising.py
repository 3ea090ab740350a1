"""Where code of upstream's has no counterpart: the statement that raises in its place, and the note of it."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

import libcst as cst

from scaffold.port.expressions import Expressions
from scaffold.port.layers import ENGINES
from scaffold.port.names import Scope
from scaffold.port.reading import reads_groups_only, returned_names
from scaffold.source.syntax import walk_tree

if TYPE_CHECKING:
    from scaffold.port.classes import ClassEntry
    from scaffold.port.engine import Engine


class Raising:
    """What all that rewrites a function knows: its scope, its class, the values that are known inside."""

    def __init__(self, engine: Engine, scope: Scope, owner: ClassEntry | None, node: ast.AST) -> None:
        self.engine, self.scope, self.owner = engine, scope, owner
        self.known: dict[str, object] = dict(owner.known) if owner is not None else {}
        self.expressions = Expressions(engine, scope, owner, self.known)
        self._neutral = reads_groups_only(node)
        self._returned = returned_names(node)
        self._stores = Counter(
            found.id for found in walk_tree(node) if isinstance(found, ast.Name) and not isinstance(found.ctx, ast.Load)
        )

    def assume(self, name: str, twin: ast.stmt) -> None:
        """Note an answer that was taken as given, unless it only decides about groups of devices."""
        if not self._neutral:
            self.engine.assume(name, self.scope.info.file, twin.lineno)

    def problem(self, twin: ast.stmt) -> cst.SimpleStatementLine:
        """Return the statement in place of one whose expressions have no counterpart."""
        what = self.expressions.problems[0]
        return self.raising(_named(what) if what.partition(".")[0] in ENGINES else what, twin.lineno)

    def raising(self, what: str, line: int) -> cst.SimpleStatementLine:
        """Return the statement that raises in place of what stands in a line of the file."""
        gap = self.engine.gap(what, self.scope.info.file, line)
        return cst.ensure_type(
            cst.parse_statement(f"raise NotImplementedError({gap.message!r})"), cst.SimpleStatementLine
        )


def _named(path: str) -> str:
    """Return the last name of a dotted path, with its class where it is an attribute of one."""
    *_, owner, last = ["", *path.split(".")]
    return f"{owner}.{last}" if owner[:1].isupper() else last
