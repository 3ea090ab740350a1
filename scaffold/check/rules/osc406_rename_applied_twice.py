"""A row of the key table makes names that the table would rename again.

Names that were mapped come back: weights that were saved under training names, a state dictionary that went through
the loader before. Where the target of one row begins with the source of another, the second pass changes the name
once more, to one that means something else.

    ("model.", "layers."), ("layers.", "blocks.")

Instead: choose targets that no row of the table takes as a source.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.follow import follow
from scaffold.check.model.key_tables import KeyTable, key_tables, renamed, renaming_functions
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC406"
NAME = "rename-applied-twice"
SEVERITY = "warning"
CHECKLIST = ("M6", "pitfall 21")
APPLIES = Applies(non_diffusers=True)
HELP = "choose a target that no row of the table takes as a source"


def check(package: Package) -> Hits:
    """Look up the target of every row in the table."""
    tables = [table for table in key_tables(package) if not table.ignores]
    for table in tables:
        for row in table.rows:
            if not row.target or row.target == row.source:
                continue
            again = renamed(tables, row.target)
            if again is not None and again.target is not None and again.target != again.source:
                text = f"{row.source!r} becomes {row.target!r}, which {again.source!r} would change again"
                yield Hit(table.file, row.target_node, text)
    if any(row.source != row.target for table in tables for row in table.rows):
        yield from _called_twice(package, tables)


def _called_twice(package: Package, tables: list[KeyTable]) -> Hits:
    """Look for a function that renames, called with its own result."""
    names = renaming_functions(tables)
    # What the rollout adapter sends through the table twice is OSC409's.
    rollout = {adapter.file for adapter in package.rollout_adapters}
    for file in (file for file in package.files if file not in rollout):
        for call in file.index.nodes(ast.Call):
            called = file.qualified(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
            inner = _source(file, call.args[0]) if called in names and call.args else None
            if inner is not None and file.qualified(inner.func) == called:
                text = f"{ast.unparse(call.func)}() is called with names that it has given already"
                yield Hit(file, call, text, "call it once")


def _source(file: PythonFile, value: ast.expr) -> ast.Call | None:
    """Return the call that a value comes from, through names, ``dict(…)`` and ``.items()``."""
    for _ in range(6):
        value = follow(file, value)
        if not isinstance(value, ast.Call):
            return None
        plain = isinstance(value.func, ast.Name) and value.func.id in ("dict", "list", "tuple", "iter", "sorted")
        if plain and len(value.args) == 1:
            value = value.args[0]
        elif isinstance(value.func, ast.Attribute) and value.func.attr == "items":
            value = value.func.value
        else:
            return value
    return None


_ROW = '    ("llm2vae.", "llm2vae."),\n'
FAILING = (
    Example(
        "called with its own result",
        {"model": [("target = to_training_key(source)", "target = «to_training_key(to_training_key(source))»")]},
    ),
    Example(
        "by way of a name",
        {
            "model": [
                (
                    "target = to_training_key(source)",
                    "first = to_training_key(source)\n                target = «to_training_key(first)»",
                )
            ]
        },
    ),
    Example("a chain", {"model": [(_ROW, '    ("llm2vae.", «"head.proj."»),\n    ("head.", "out."),\n')]}),
    Example("into itself", {"model": [(_ROW, '    ("llm2vae.", «"llm2vae.proj."»),\n')]}),
)
PASSING = (
    Example(
        "there and back",
        {
            "model": [
                (
                    "target = to_training_key(source)",
                    "target = to_training_key(to_checkpoint_key(to_training_key(source)))",
                )
            ]
        },
    ),
    Example("targets are no sources"),
    Example("a row that changes nothing", {"model": [(_ROW, '    ("head.", "llm2vae."),\n')]}),
)
