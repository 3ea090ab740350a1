"""Two rows of the key table lead to names that cannot be told apart on the way back.

The way back is used as well: to save weights under the checkpoint's names, and to send the actor's weights to the
engine. Two rows with the same target make the inverse a guess, and half of the weights arrive under the other half's
names.

    ("encoder.", "layers."), ("decoder.", "layers.")

Instead: give every row a target of its own.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.key_tables import Rename, key_tables
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC402"
NAME = "rename-without-inverse"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 21")
APPLIES = Applies(non_diffusers=True)
HELP = "give every row of the table a target of its own"


def check(package: Package) -> Hits:
    """Look for rows with the same target, and for sources that stand twice."""
    for table in key_tables(package):
        if table.ignores:
            continue
        targets: dict[str, Rename] = {}
        sources: dict[str, Rename] = {}
        for row in table.rows:
            if row.source in sources and sources[row.source].target != row.target:
                text = f"{row.source!r} stands twice, with {sources[row.source].target!r} and with {row.target!r}"
                yield Hit(table.file, row.source_node, text, "keep one of the two rows")
            elif row.target is not None and row.target in targets and row.source not in sources:
                text = f"{row.source!r} and {targets[row.target].source!r} both become {row.target!r}"
                yield Hit(table.file, row.target_node, text)
            sources.setdefault(row.source, row)
            if row.target is not None:
                targets.setdefault(row.target, row)


FAILING = (
    Example(
        "two prefixes with one target",
        {"model": [('    ("llm2vae.", "llm2vae."),\n', '    ("llm2vae.", «"vae2llm."»),\n')]},
    ),
    Example(
        "two prefixes cut off",
        {
            "model": [
                ('    ("language_model.model.", ""),\n', '    ("language_model.model.", ""),\n    ("model.", «""»),\n')
            ]
        },
    ),
    Example(
        "one prefix twice",
        {
            "model": [
                ('    ("llm2vae.", "llm2vae."),\n', '    ("llm2vae.", "llm2vae."),\n    («"vae2llm."», "head."),\n')
            ]
        },
    ),
)
PASSING = (
    Example("every row has a target of its own"),
    Example("reasons may repeat", {"model": [('"predicts text"),)', '"predicts text"), ("vit.", "predicts text"))')]}),
)
