"""Two keys of the checkpoint become the same parameter.

Whichever tensor is read last wins, and which one that is depends on the order of the file. The other one is lost
without a word.

    ("model.", ""), ("ema.model.", "")       # one file holds both

Instead: let one row take the keys that training needs, and ignore the others with a reason.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.example_keys import recorded_spec
from scaffold.check.model.key_tables import (
    Rename,
    key_tables,
    loading_functions,
    recorded_keys,
    renamed,
    renaming_functions,
)
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC404"
NAME = "shared-rename-target"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 22")
APPLIES = Applies(non_diffusers=True)
HELP = "ignore one of the two keys, with a reason"


def check(package: Package) -> Hits:
    """Apply the table to the keys that ``scaffold.toml`` records."""
    yield from _passed_over(package)
    keys = recorded_keys(package)
    tables = [table for table in key_tables(package) if not table.ignores]
    if keys is None:
        return
    taken: dict[str, tuple[str, Rename]] = {}
    reported: set[Rename] = set()
    for key in keys.kept:
        row = renamed(tables, key)
        if row is None or row.target is None:
            continue
        target = row.target + key[len(row.source) :]
        if target in taken and taken[target][1] is not row and row not in reported:
            reported.add(row)
            table = next(table for table in tables if row in table.rows)
            yield Hit(table.file, row.target_node, f"{key!r} and {taken[target][0]!r} both become {target!r}")
        taken.setdefault(target, (key, row))


def _passed_over(package: Package) -> Hits:
    """Look for a loop that leaves out a tensor whose name is taken, without a word."""
    names = renaming_functions(key_tables(package))
    for function in loading_functions(package):
        index = function.file.index
        if function.file not in package.files:
            continue
        for loop in function.nodes(ast.For):
            targets = {
                node.targets[0].id
                for node in index.nodes(ast.Assign, loop)
                if isinstance(node.targets[0], ast.Name)
                and isinstance(node.value, ast.Call)
                and function.file.qualified(node.value.func) in names
            }
            for test in index.nodes(ast.If, loop):
                asked = test.test
                plain = isinstance(asked, ast.Compare) and isinstance(asked.ops[0], ast.In) and len(asked.ops) == 1
                if not plain or not isinstance(asked, ast.Compare) or not isinstance(asked.left, ast.Name):
                    continue
                left_out = len(test.body) == 1 and isinstance(test.body[0], (ast.Continue, ast.Pass))
                kept = [n for n in index.nodes(ast.Subscript, loop) if isinstance(n.ctx, ast.Store)]
                store = ast.unparse(asked.comparators[0])
                if left_out and asked.left.id in targets and any(ast.unparse(n.value) == store for n in kept):
                    text = "a second tensor for one parameter is passed over"
                    yield Hit(function.file, asked, text, "raise, naming both tensors")


SPEC = recorded_spec() + '[[checkpoint.table]]\nsource = "ema.vae2llm.weight"\ntarget = "vae2llm.weight"\n'
_ROW = '    ("vae2llm.", "vae2llm."),\n'
_KEEP = "                if target is not None:\n"
FAILING = (
    Example(
        "the second one is passed over",
        {"model": [(_KEEP, "                if «target in state»:\n                    continue\n" + _KEEP)]},
    ),
    Example(
        "two copies of one weight",
        {"spec": SPEC, "model": [(_ROW, _ROW + '    ("ema.vae2llm.", «"vae2llm."»),\n')]},
        also=("OSC402",),
    ),
    Example(
        "by a row for a single name",
        {
            "spec": SPEC,
            "model": [(_ROW, '    ("ema.vae2llm.weight", «"vae2llm.weight"»),\n    ("vae2llm.", "vae2llm."),\n')],
        },
    ),
)
PASSING = (
    Example(
        "refused",
        {
            "model": [
                (_KEEP, "                if target in state:\n                    raise ValueError(target)\n" + _KEEP)
            ]
        },
    ),
    Example("one of them is ignored", {"spec": recorded_spec()}),
    Example("nothing is known of the checkpoint", {"model": [(_ROW, _ROW + '    ("ema.vae2llm.", "vae."),\n')]}),
)
