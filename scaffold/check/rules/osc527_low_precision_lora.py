"""A script trains LoRA in bfloat16 under FSDP2.

FSDP2 reduces gradients in float32. LoRA parameters take the model's type where ``lora_dtype`` says nothing, and the
first backward pass stops: the gradient's type is not the parameter's.

    actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.actor.fsdp_config.model_dtype=bfloat16     # no lora_dtype

Instead: ``actor_rollout_ref.model.lora_dtype=float32``. Seen in verl-omni#600.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.shell import MODEL, lora_rank
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC527"
NAME = "low-precision-lora"
SEVERITY = "error"
CHECKLIST = ("W3", "pitfall 53")
APPLIES = Applies(non_diffusers=True)
HELP = f"write {MODEL}lora_dtype=float32"
_ACTOR = "actor_rollout_ref.actor."
_LOW = {"bfloat16", "bf16", "float16", "fp16", "half"}


def check(package: Package) -> Hits:
    """Look at the types that scripts of LoRA under FSDP2 ask for."""
    for script in package.scripts:
        strategy = script.override(f"{_ACTOR}strategy")
        if strategy is None or strategy.usual != "fsdp2" or not lora_rank(script):
            continue
        of_lora = script.override(f"{MODEL}lora_dtype")
        asked = of_lora or script.override(f"{_ACTOR}fsdp_config.model_dtype")
        if asked is not None and asked.usual in _LOW:
            yield Hit(
                script, asked.span, f"LoRA is trained in {asked.usual} under FSDP2, which stops in the first update"
            )


_RANK = "    actor_rollout_ref.model.lora_rank=64\n"
_STRATEGY = "    actor_rollout_ref.actor.strategy=fsdp2\n"
_TYPE = "actor_rollout_ref.actor.fsdp_config.model_dtype=bfloat16"
FAILING = (
    Example("the model's type", launch=(_RANK, f"{_RANK}{_STRATEGY}    «{_TYPE}»\n")),
    Example("asked for", launch=(_RANK, f"{_RANK}{_STRATEGY}    «actor_rollout_ref.model.lora_dtype=bf16»\n")),
)
PASSING = (
    Example(
        "float32", launch=(_RANK, f"{_RANK}{_STRATEGY}    {_TYPE}\n    actor_rollout_ref.model.lora_dtype=float32\n")
    ),
    Example("FSDP1", launch=(_RANK, f"{_RANK}    {_TYPE}\n")),
)
