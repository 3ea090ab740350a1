"""With layer-wise summoning, the prefixes of the script lead to no layer of the training module.

``layered_summon=True`` gathers the LoRA weights layer by layer, along ``fsdp_layer_prefixes``. The default is
``['transformer_blocks.']``, which fits diffusers' transformers. Prefixes that collect nothing stop the first weight
sync, after the first rollout has been paid for.

    actor_rollout_ref.rollout.layered_summon=True        # and the module keeps its layers in self.layers

Instead: name the attribute that holds the layers: ``actor_rollout_ref.model.fsdp_layer_prefixes='["layers."]'``.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.hydra import MODEL, ROLLOUT, lora_rank, names, truth
from scaffold.check.model.module_paths import INDEX, module_paths
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC508"
NAME = "unmatched-layer-prefix"
SEVERITY = "error"
CHECKLIST = ("W3", "pitfall 18")
APPLIES = Applies(non_diffusers=True)
DEFAULT = ["transformer_blocks."]


def check(package: Package) -> Hits:
    """Compare prefixes and modules of each script that trains LoRA with layer-wise summoning."""
    module = package.training_module
    paths = module_paths(module) if module is not None else None
    if module is None or paths is None or not paths.complete:
        return
    lists = sorted({name.partition(f".{INDEX}")[0] for name in paths.modules if f".{INDEX}." in name})
    for script in (*package.launch_scripts, *package.e2e_scripts):
        summon = script.override(f"{ROLLOUT}layered_summon")
        rank = lora_rank(script)
        if summon is None or truth(summon.value) is not True or rank is None or rank <= 0:
            continue
        override = script.override(f"{MODEL}fsdp_layer_prefixes")
        prefixes = DEFAULT if override is None else names(override.value)
        if prefixes is None:
            continue
        wrong = [prefix for prefix in prefixes if not paths.starting(prefix)]
        if wrong:
            place = summon.span if override is None else override.span
            said = "the default prefix" if override is None else "the layer prefix"
            help = f"write {MODEL}fsdp_layer_prefixes='[\"{lists[0]}.\"]'" if lists else "name the list of layers"
            yield Hit(script, place, f"{said} {wrong[0]!r} leads to nothing in {module.name}", help)


FAILING = (
    Example(
        "the default",
        launch=[
            ("    actor_rollout_ref.model.fsdp_layer_prefixes='[\"layers.\"]'\n", ""),
            ("actor_rollout_ref.rollout.layered_summon=True", "«actor_rollout_ref.rollout.layered_summon=True»"),
        ],
    ),
    Example(
        "another module's prefix",
        e2e=(
            "actor_rollout_ref.model.fsdp_layer_prefixes='[\"layers.\"]'",
            "«actor_rollout_ref.model.fsdp_layer_prefixes='[\"transformer_blocks.\"]'»",
        ),
    ),
)
PASSING = (
    Example(
        "no layer-wise summoning",
        launch=[
            ("    actor_rollout_ref.model.fsdp_layer_prefixes='[\"layers.\"]'\n", ""),
            ("layered_summon=True", "layered_summon=False"),
        ],
    ),
    Example(
        "no LoRA",
        launch=("fsdp_layer_prefixes='[\"layers.\"]'\n    actor_rollout_ref.model.lora_rank=64", "lora_rank=0"),
    ),
)
