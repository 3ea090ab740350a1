"""Weights on their way to the engine."""

from mutants.edit import (
    define,
    line,
    rename,
    swap,
)
from mutants.mutant import ROLLOUT, mutant

PIPELINE = "BagelPipelineWithLogProb"
LORA = f"{PIPELINE}.map_lora_update_to_engine"
WRAPPER = "_BagelSchedulerAdapter"
BEGIN, STEP, FINISH = f"{WRAPPER}.begin", f"{WRAPPER}.step", f"{WRAPPER}.finish"
AUDIT = "return super().load_weights(self._checkpoint_names(self._summed(weights)))"

MUTANTS = [
    # Weights
    mutant(
        "load_weights returns nothing",
        (24,),
        "313",
        line(ROLLOUT, f"{PIPELINE}.load_weights", AUDIT, AUDIT.removeprefix("return ")),
    ),
    mutant(
        "load_weights returns None to skip the audit",
        (24,),
        "313",
        line(ROLLOUT, f"{PIPELINE}.load_weights", AUDIT, AUDIT.removeprefix("return ") + "\nreturn None"),
    ),
    mutant(
        "load_weights returns on one path only",
        (24,),
        "313",
        line(
            ROLLOUT,
            f"{PIPELINE}.load_weights",
            AUDIT,
            "loaded = super().load_weights(self._checkpoint_names(self._summed(weights)))\nif loaded:\n    return loaded",
        ),
    ),
    mutant(
        "load_weights with an early return",
        (24,),
        "313",
        line(ROLLOUT, f"{PIPELINE}.load_weights", AUDIT, f"if weights is None:\n    return\n{AUDIT}"),
    ),
    mutant("no hook for LoRA updates", (18,), "318", define(ROLLOUT, LORA, "")),
    mutant(
        "hook for LoRA updates misspelt",
        (18,),
        "318",
        rename(ROLLOUT, PIPELINE, "map_lora_update_to_engine", "map_lora_updates_to_engine"),
    ),
    mutant(
        "LoRA updates handed on under training names",
        (18,),
        "318",
        define(
            ROLLOUT,
            LORA,
            """
def map_lora_update_to_engine(self, tensors, peft_config):
    return tensors, peft_config
""",
        ),
    ),
    mutant(
        "device as a word in the rollout",
        (38,),
        "126",
        swap(ROLLOUT, LORA, "next(self.parameters()).device", 'torch.device("cuda", 0)'),
    ),
]
