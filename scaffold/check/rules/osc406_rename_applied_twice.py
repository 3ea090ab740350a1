"""A row of the key table makes names that the table would rename again.

Names that were mapped come back: weights that were saved under training names, a state dictionary that went through
the loader before. Where the target of one row begins with the source of another, the second pass changes the name
once more, to one that means something else.

    ("model.", "layers."), ("layers.", "blocks.")

Instead: choose targets that no row of the table takes as a source.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.key_tables import key_tables, renamed
from scaffold.check.model.package import Package
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


_ROW = '    ("llm2vae.", "llm2vae."),\n'
FAILING = (
    Example("a chain", {"model": [(_ROW, '    ("llm2vae.", «"head.proj."»),\n    ("head.", "out."),\n')]}),
    Example("into itself", {"model": [(_ROW, '    ("llm2vae.", «"llm2vae.proj."»),\n')]}),
)
PASSING = (
    Example("targets are no sources"),
    Example("a row that changes nothing", {"model": [(_ROW, '    ("head.", "llm2vae."),\n')]}),
)
