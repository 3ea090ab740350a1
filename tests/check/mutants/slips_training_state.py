"""Small slips in state, guidance constants and trainable parameters."""

from mutants.edit import add, decorate, line, swap
from mutants.mutant import COMMON, TRAINING, Mutant, mutant

ADAPTER = "BagelDiffusion"
STEP = f"{ADAPTER}.forward_and_sample_previous_step"
RESULT = "return log_prob, prev_sample_mean, std_dev_t, sqrt_dt"


def slip(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant with one expression or one run of statements changed."""
    return mutant(name, items, rules, swap(TRAINING, within, old, new))


def shared(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant of what both sides share."""
    return mutant(name, items, rules, swap(COMMON, within, old, new))


MUTANTS = [
    # State
    mutant(
        "global kept by a step",
        (40,),
        "215",
        add(TRAINING, "", "_LAST = {}", first=False),
        line(TRAINING, STEP, RESULT, f"_LAST['velocity'] = velocity\n{RESULT}"),
    ),
    mutant(
        "step cached",
        (40,),
        "215",
        decorate(TRAINING, f"{ADAPTER}._latent_pos_ids", "staticmethod", "functools.lru_cache"),
        swap(TRAINING, "", "import logging", "import functools\nimport logging"),
    ),
    # Guidance shared
    shared("scale of guidance changed", (29,), "316", "", "4.0", "1.0"),
    slip(
        "scale read under another name",
        (29,),
        "316 205",
        "guide",
        'guidance["cfg_renorm_type"]',
        'guidance["cfg_renorm"]',
    ),
    slip(
        "guidance from the wrong section",
        (29,),
        "316",
        STEP,
        "getattr(model_config.pipeline, name, None)",
        "getattr(model_config.algo, name, None)",
    ),
    slip(
        "trainable parameters by another name",
        (19, 18),
        "218",
        f"{ADAPTER}.configure_trainable_params",
        '"moe_gen" in name',
        '"gen_moe" in name',
    ),
    slip(
        "everything frozen",
        (19,),
        "218",
        f"{ADAPTER}.configure_trainable_params",
        'parameter.requires_grad = "moe_gen" in name',
        "parameter.requires_grad = False",
    ),
    slip(
        "the frozen ones trained",
        (19,),
        "218",
        f"{ADAPTER}.configure_trainable_params",
        '"moe_gen" in name',
        '"moe_gen" not in name',
    ),
]
