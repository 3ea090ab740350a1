"""A row of the key table matches no key of the checkpoint.

A rename that fits nothing was written for another release of the checkpoint, or with a typing error. The keys that it
was meant for go another way: a more general row takes them to a wrong name, or they are left over.

    ("languge_model.model.", "")        # the checkpoint's keys begin with language_model.model.

Instead: remove the row, or correct it. ``omni-scaffold remap`` shows which keys each row takes.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.key_tables import folded, key_tables, recorded_keys, renamed
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC401"
NAME = "dead-rename-rule"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 20")
APPLIES = Applies(non_diffusers=True)
HELP = "remove the row, or correct it"


def check(package: Package) -> Hits:
    """Compare the rows with the keys that ``scaffold.toml`` records; without it nothing is known of the checkpoint."""
    keys = recorded_keys(package)
    if keys is None:
        return
    tables = key_tables(package)
    names = [folded(key) for key in (*keys.kept, *keys.dropped)]
    deciding = [renamed(tables, key) for key in keys.kept]
    for table in tables:
        for row in table.rows:
            source = folded(row.source)
            fits = [name for name in names if name.startswith(source) or source.startswith(name)]
            if not fits:
                yield Hit(table.file, row.source_node, f"no key of the checkpoint begins with {row.source!r}")
            elif not table.ignores and row not in deciding and all(name in keys.kept for name in fits):
                text = f"every key that begins with {row.source!r} is taken by a longer row"
                yield Hit(table.file, row.source_node, text)


_KEYS = {
    "language_model.model.norm.weight": "norm.weight",
    "time_embedder.mlp.0.weight": "time_embedder.mlp.0.weight",
    "vae2llm.weight": "vae2llm.weight",
    "llm2vae.weight": "llm2vae.weight",
    "latent_pos_embed.weight": "latent_pos_embed.weight",
    "language_model.lm_head.": "",
}
_ROW = '[[checkpoint.table]]\nsource = "{}"\ntarget = "{}"\n'
SPEC = "".join(_ROW.format(source, target) for source, target in _KEYS.items())
FAILING = (Example("a typing error", spec=SPEC, model=('"language_model.model."', '«"languge_model.model."»')),)
PASSING = (Example("every row has its keys", spec=SPEC), Example("nothing is recorded"))
