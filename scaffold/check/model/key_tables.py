"""Tables of a package that rename checkpoint keys, and the keys that its ``scaffold.toml`` records."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.check.model.constants import known
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel, PythonFile
from scaffold.check.model.reach import reachable

_KEY = re.compile(r"[\w.{}\[\]-]*")
_RANGE = re.compile(r"\{[^{}]*\}")


class Rename(NamedTuple):
    """One row of a table: keys that begin with ``source`` begin with ``target`` instead.

    Attributes:
        source, target: prefixes, or whole names where they do not end in a dot; ``target`` is None for a drop.
        node: the row.
        source_node: where its source is written.
    """

    source: str
    target: str | None
    node: ast.expr
    source_node: ast.expr

    def matches(self, key: str) -> bool:
        """Whether the row applies to a key."""
        return key == self.source or (self.source[-1:] in ("", ".") and key.startswith(self.source))


class KeyTable(NamedTuple):
    """A table at the top level of a module: of renames, or of keys that are ignored, with the reason."""

    file: PythonFile
    name: str
    rows: tuple[Rename, ...]
    ignores: bool = False


class RecordedKeys(NamedTuple):
    """Checkpoint keys as ``scaffold.toml`` records them, folded: ``layers.{0..27}.mlp.up_proj.weight``.

    Attributes:
        kept: folded key -> folded parameter.
        dropped: prefixes or names of keys that are ignored, with the reason.
    """

    kept: dict[str, str]
    dropped: dict[str, str]


def key_tables(package: Package) -> list[KeyTable]:
    """Return the tables in files of functions that ``from_pretrained`` reaches.

    A table is a tuple or list of pairs, or a dictionary, of names with dots: checkpoint side first. Rows without a
    target are keys that are ignored.
    """
    files = {function.file for function in loading_functions(package)}
    return [table for file in package.files if file in files for table in _tables(file)]


def loading_functions(package: Package) -> list[FunctionModel]:
    """Return the functions that loading the training module's weights reaches."""
    module = package.training_module
    start = module.method("from_pretrained") if module is not None else None
    return reachable(start, module) if start is not None else []


def renamed(tables: list[KeyTable], key: str) -> Rename | None:
    """Return the row that applies to a key: the one with the longest matching source."""
    rows = [row for table in tables for row in table.rows if row.matches(key)]
    return max(rows, key=lambda row: len(row.source), default=None)


def folded(name: str) -> str:
    """Return a name with every number, or range of numbers, as ``*``."""
    return ".".join("*" if part.isdigit() else part for part in _RANGE.sub("*", name).split("."))


def recorded_keys(package: Package) -> RecordedKeys | None:
    """Return the keys that the package's ``scaffold.toml`` records; None without one, or where it is not readable."""
    checkpoint = package.facts.all.get("checkpoint")
    table = checkpoint.get("table") if isinstance(checkpoint, dict) else None
    rows = [row for row in table if isinstance(row, dict)] if isinstance(table, list) else []
    rows = [row for row in rows if isinstance(row.get("source"), str)]
    kept = {row["source"]: row["target"] for row in rows if row.get("target")}
    dropped = {row["source"]: str(row.get("reason", "")) for row in rows if not row.get("target")}
    return RecordedKeys(kept, dropped) if kept else None


def _tables(file: PythonFile) -> Iterator[KeyTable]:
    for name, bindings in file.names.items():
        if len(bindings) != 1 or bindings[0].kind != "variable" or bindings[0].value is None:
            continue
        rows = list(_rows(file, bindings[0].value))
        if (
            not rows
            or not any("." in row.source for row in rows)
            or not all(_KEY.fullmatch(row.source) for row in rows)
        ):
            continue
        if all(_KEY.fullmatch(row.target or "") for row in rows):
            yield KeyTable(file, name, tuple(rows))
        elif all(row.target and " " in row.target for row in rows):
            # The second column gives reasons, in words.
            yield KeyTable(file, name, tuple(row._replace(target=None) for row in rows), ignores=True)


def _rows(file: PythonFile, value: ast.expr) -> Iterator[Rename]:
    """Yield the rows of a table up to the first one that is no literal, after which nothing is certain."""
    pairs: list[tuple[ast.expr, ast.expr, ast.expr]] = []
    if isinstance(value, ast.Dict):
        pairs = [(key, key, item) for key, item in zip(value.keys, value.values, strict=True) if key is not None]
        if len(pairs) != len(value.keys):
            return
    elif isinstance(value, (ast.Tuple, ast.List)):
        for row in value.elts:
            if not isinstance(row, (ast.Tuple, ast.List)) or len(row.elts) != 2:
                return
            pairs.append((row, row.elts[0], row.elts[1]))
    for row, left, right in pairs:
        source, target = file.value(left), file.value(right)
        if not isinstance(source, str) or not (target is None or isinstance(target, str)) or not known(target):
            return
        yield Rename(source, target, row, left)
