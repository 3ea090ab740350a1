"""Mistakes in which a name is there and its value is not: dropped, copied, switched off, or of another kind."""

from mutants.edit import text
from mutants.mutant import COMMON, CPU_TEST, INIT, LAUNCH, MODEL, ROLLOUT, TRAINING, Mutant, mutant

CALL = "            context, latents = self._checkpointed_call(layer, context, latents, layout)\n"
BACK = "            return source + name[len(target) :]\n"
QUEUE = "        q_latents = self.q_proj_moe_gen(latents).unflatten(-1, heads)\n"
DEVICE = "cls.set_timesteps(scheduler, model_config, get_device_name())"
PROMPT = "        if not isinstance(prompt, dict):\n            return\n        extra_args ="
DRAW = "random.Random(int(training_step))"
NEGATIVE = "return conditional, {**shared, "
NEGATIVE += '"text_token_ids": None, "text_attention_mask": None}'
MASK = "torch.arange(ids.shape[1], device=device) < torch.tensor(lengths, device=device)[:, None]"
LENGTH = "        text_length = ids[0].shape[1] if ids else 0\n"


def changed(name: str, items: tuple, rules: str, path: str, *pairs: tuple[str, str]) -> Mutant:
    """Return a mutant of one file in which texts that stand there once are replaced."""
    return mutant(name, items, rules, *(text(path, old, new) for old, new in pairs))


MUTANTS = [
    changed(
        "rollout adapter imported for type checkers",
        ("W1", 25),
        "503",
        INIT,
        (
            "from .vllm_omni_rollout_adapter import BagelPipelineWithLogProb\n",
            "import typing\n\nif typing.TYPE_CHECKING:\n"
            "    from .vllm_omni_rollout_adapter import BagelPipelineWithLogProb\n",
        ),
    ),
    changed(
        "training data under another file name",
        ("W3",),
        "510",
        LAUNCH,
        ('data.train_files="$DATA_DIR/train.parquet"', 'data.train_files="$DATA_DIR/training.parquet"'),
    ),
    changed(
        "CPU tests left out at import",
        ("S1",),
        "705",
        CPU_TEST,
        ("ARCHITECTURE, ALGORITHM =", 'pytest.skip("slow", allow_module_level=True)\nARCHITECTURE, ALGORITHM ='),
    ),
    changed(
        "checkpointing declared as a type only",
        ("M4",),
        "104",
        MODEL,
        ("_supports_gradient_checkpointing = True", "_supports_gradient_checkpointing: bool"),
    ),
    changed(
        "layer class annotated only",
        ("M3",),
        "102",
        MODEL,
        ('_no_split_modules = ["BagelMoTLayer"]', "_no_split_modules: list[str]"),
    ),
    changed(
        "checkpointing where nothing is trained",
        ("M5", 10),
        "105",
        MODEL,
        (
            CALL,
            "            if not self.training:\n    " + CALL + "            else:\n"
            "                context, latents = layer(context, latents, layout)\n",
        ),
    ),
    changed("prefix put before prefix", ("M6", 21), "402", MODEL, (BACK, '            return f"{source}{name}"\n')),
    changed(
        "renamed on the way in and again",
        ("M6", 21),
        "406",
        MODEL,
        (
            "target = to_training_key(source)",
            "first = to_training_key(source)\n                target = to_training_key(first)",
        ),
    ),
    changed(
        "length of the first mask",
        (14,),
        "118",
        MODEL,
        (
            LENGTH,
            LENGTH + "        if text_attention_mask is not None:\n"
            "            text_length = int(text_attention_mask.sum(dim=1)[0])\n",
        ),
    ),
    changed(
        "projections fused in a loop",
        (34,),
        "120",
        MODEL,
        (
            QUEUE,
            "        weights = []\n        for part in (self.q_proj_moe_gen, self.k_proj_moe_gen):\n"
            "            weights.append(part.weight)\n"
            "        q_latents = F.linear(latents, weights[0], self.q_proj_moe_gen.bias).unflatten(-1, heads)\n",
        ),
    ),
    changed(
        "device put together",
        (38,),
        "126",
        TRAINING,
        (DEVICE, 'cls.set_timesteps(scheduler, model_config, "cuda:" + str(0))'),
    ),
    changed(
        "text written into a deep copy",
        ("R5",),
        "305",
        ROLLOUT,
        ("import os\n", "import copy\nimport os\n"),
        (
            PROMPT,
            PROMPT.replace("        extra_args =", "        prompt = copy.deepcopy(prompt)\n        extra_args ="),
        ),
    ),
    changed(
        "points of another release",
        ("R6", 5),
        "309",
        COMMON,
        ("points = max(num_inference_steps, 2)", "points = max(num_inference_steps, 1) + 1"),
    ),
    changed(
        "window from step and chance",
        ("R6", 15),
        "308",
        COMMON,
        (DRAW, "random.Random(int(training_step) + random.getrandbits(8))"),
    ),
    changed("negative inputs copied", ("T4",), "221", TRAINING, (NEGATIVE, "return conditional, conditional.copy()")),
    changed("mask that the padding passes", (9,), "216", TRAINING, (MASK, "ids > -1")),
]
