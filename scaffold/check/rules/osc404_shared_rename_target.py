"""Two keys of the checkpoint become the same parameter.

Whichever tensor is read last wins, and which one that is depends on the order of the file. The other one is lost
without a word.

    ("model.", ""), ("ema.model.", "")       # one file holds both

Instead: let one row take the keys that training needs, and ignore the others with a reason.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.example_keys import recorded_spec
from scaffold.check.model.key_tables import Rename, key_tables, recorded_keys, renamed
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


SPEC = recorded_spec() + '[[checkpoint.table]]\nsource = "ema.vae2llm.weight"\ntarget = "vae2llm.weight"\n'
_ROW = '    ("vae2llm.", "vae2llm."),\n'
FAILING = (
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
    Example("one of them is ignored", {"spec": recorded_spec()}),
    Example("nothing is known of the checkpoint", {"model": [(_ROW, _ROW + '    ("ema.vae2llm.", "vae."),\n')]}),
)
