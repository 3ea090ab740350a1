"""A key that the table keeps leads to no parameter of the training module.

The checkpoint has a weight that generation uses, the table names it, and the module has nothing to put it into: a
part was left out of the port, or goes by another name. A strict load stops there; one that is not strict trains a
model without that part.

    ("latent_pos_embed.", "latent_pos_embed.")        # and no self.latent_pos_embed in the module

Instead: add the part to the module, correct the name, or ignore the key with the reason.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.example_keys import recorded_spec
from scaffold.check.model.key_tables import Rename, folded, key_tables, recorded_keys, renamed
from scaffold.check.model.module_parameters import built_parameters
from scaffold.check.model.module_paths import module_paths
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC408"
NAME = "unplaced-key"
SEVERITY = "error"
CHECKLIST = ("M6", "M7", "M8", "pitfall 22")
APPLIES = Applies(non_diffusers=True)
HELP = "add the part to the module, correct the name, or ignore the key with the reason"


def check(package: Package) -> Hits:
    """Apply the table to the keys that ``scaffold.toml`` records and look for the module that each leads into."""
    keys, module = recorded_keys(package), package.training_module
    tables = [table for table in key_tables(package) if not table.ignores]
    paths = module_paths(module) if module is not None else None
    if keys is None or module is None or paths is None or not paths.complete:
        return
    known = {folded(name) for name in (*paths.modules, *paths.parameters)}
    built = {folded(name): part for name, part, _ in built_parameters(module)}
    shared = _shared(package)
    reported: set[Rename] = set()
    for key in keys.kept:
        row = renamed(tables, key)
        if row is None or row.target is None or row in reported:
            continue
        name = row.target + key[len(row.source) :]
        weight = built.get(folded(name.removesuffix(".bias") + ".weight")) if name.endswith(".bias") else None
        if weight is not None and folded(name) not in built and weight.qualified == "torch.nn.Linear":
            yield Hit(weight.file, weight.node, f"the checkpoint has {key!r}, and this projection has no bias")
            continue
        # The weight of a module is its last component; parameters of a class of the tree have their own names.
        # What stands under a second name is in the state under both.
        placed = {folded(name), folded(name.rpartition(".")[0])} & known or shared & set(name.split("."))
        if not placed:
            table = next(table for table in tables if row in table.rows)
            reported.add(row)
            yield Hit(table.file, row.source_node, f"{key!r} becomes {name!r}, which {module.name} does not have")


def _shared(package: Package) -> set[str]:
    """Return the attributes of modules that are given another attribute: ``self.head = self.proj``."""
    owners = dict.fromkeys(part.owner for part in package.module_tree)
    found = ((name, one) for cls in owners for name, many in cls.own_instance_attributes.items() for one in many)
    return {name for name, one in found if isinstance(one.value, ast.Attribute)}


SPEC = recorded_spec()
_POS = "        self.latent_pos_embed = nn.Embedding(config.max_latent_size**2, config.hidden_size)\n"
_ADD = "        latents = latents + self.latent_pos_embed(latent_pos_ids)\n"
_ROW = '    ("latent_pos_embed.", "latent_pos_embed."),\n'
_MARK = (_ROW, _ROW.replace('("latent_pos_embed."', '(«"latent_pos_embed."»'))
_GEN = "        self.q_proj_gen = nn.Linear(hidden, hidden)\n"
_TWIN = "        self.mlp_gen = ToyMLP(config)\n"
FAILING = (
    Example(
        "a projection without the checkpoint's bias",
        {
            "spec": SPEC,
            "model": [(_GEN, "        «self.q_proj_gen» = nn.Linear(hidden, hidden, bias=False)\n")],
        },
    ),
    Example("a part is missing", {"spec": SPEC, "model": [(_POS, ""), (_ADD, ""), _MARK]}, also=("OSC135",)),
    Example(
        "a row that leads elsewhere",
        {"spec": SPEC, "model": [('    ("vae2llm.", "vae2llm."),\n', '    («"vae2llm."», "vae_proj."),\n')]},
        also=("OSC403",),
    ),
)
PASSING = (
    Example("every key has its place", {"spec": SPEC}),
    Example(
        "one module under two names",
        {"spec": SPEC, "model": [(_TWIN, "        self.mlp_gen = self.mlp\n")]},
        also=("OSC151",),
    ),
    Example("nothing is known of the checkpoint", {"model": [(_POS, ""), (_ADD, "")]}, also=("OSC135",)),
    Example(
        "ignored with the reason",
        {
            "spec": SPEC.replace('target = "latent_pos_embed.weight"', 'target = ""'),
            "model": [
                (_POS, ""),
                (_ADD, ""),
                (_ROW, ""),
                ('"predicts text"),)', '"predicts text"), ("latent_pos_embed.", "no positions"))'),
            ],
        },
        also=("OSC135",),
    ),
)
