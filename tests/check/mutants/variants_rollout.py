"""Other ways to make the same mistakes in the rollout adapter."""

from mutants.edit import (
    add,
    argument,
    define,
    drop_argument,
    line,
    swap,
)
from mutants.mutant import (
    COMMON,
    ROLLOUT,
    mutant,
)

PIPELINE = "BagelPipelineWithLogProb"
WRAPPER = "_BagelSchedulerAdapter"

MUTANTS = [
    # Rollout adapter
    mutant(
        "scheduler replaced after the run",
        ("R3",),
        "303",
        line(ROLLOUT, f"{PIPELINE}.__init__", "self.scheduler = _BagelSchedulerAdapter()"),
        line(
            ROLLOUT,
            f"{PIPELINE}.forward",
            "self._ensure_bagel_prompt_text(req)",
            "sde = _BagelSchedulerAdapter()\nself._ensure_bagel_prompt_text(req)",
        ),
    ),
    mutant(
        "batch taken off again before the step",
        ("R4",),
        "304",
        argument(ROLLOUT, f"{WRAPPER}.step", "self.inner.step", "sample", "sample[0]"),
        argument(ROLLOUT, f"{WRAPPER}.step", "self.inner.step", "model_output", "model_output.float()"),
    ),
    mutant(
        "prompt's text is the ids as text",
        ("R5",),
        "305 312",
        line(
            ROLLOUT,
            f"{PIPELINE}._ensure_bagel_prompt_text",
            'prompt["prompt"] = self._decode_prompt(prompt["prompt_token_ids"])',
            "pass",
        ),
    ),
    mutant(
        "window's size not read",
        ("R6",),
        "306",
        swap(
            ROLLOUT,
            f"{PIPELINE}.forward",
            'extra_args.get("sde_window_size")',
            "2",
        ),
    ),
    mutant(
        "one step less asked for",
        (5,),
        "309",
        line(
            ROLLOUT,
            f"{PIPELINE}.forward",
            "requested_steps = int(params.num_inference_steps)",
            "requested_steps = int(params.num_inference_steps)\nparams.num_inference_steps = requested_steps - 1",
        ),
    ),
    mutant(
        "timesteps not returned",
        ("R6",),
        "314",
        drop_argument(ROLLOUT, f"{PIPELINE}.forward", "rollout_output", "trajectory_timesteps"),
    ),
    mutant(
        "window cut once more at the end",
        (2,),
        "307",
        argument(
            ROLLOUT,
            f"{PIPELINE}.forward",
            "rollout_output",
            "trajectory_log_probs",
            "log_probs[:, window[0] : window[1]] if window else log_probs",
        ),
    ),
    mutant(
        "window seeded with the time",
        (15,),
        "308",
        add(COMMON, "", "import time", first=True),
        swap(COMMON, "pick_sde_window", "random.Random(int(training_step))", "random.Random(time.time_ns())"),
    ),
    mutant(
        "window from numpy",
        (15,),
        "308",
        add(COMMON, "", "import numpy as np", first=True),
        swap(
            COMMON,
            "pick_sde_window",
            "low + int(random.Random(int(training_step)).random() * (latest - low + 1))",
            "int(np.random.randint(low, latest + 1))",
        ),
    ),
    mutant(
        "global generator seeded in a helper",
        (17,),
        "310",
        add(ROLLOUT, "", "def _seed_all(seed):\n    torch.manual_seed(seed)"),
        line(
            ROLLOUT,
            f"{PIPELINE}.forward",
            "requested_steps = int(params.num_inference_steps)",
            "requested_steps = int(params.num_inference_steps)\n_seed_all(params.seed)",
        ),
    ),
    mutant(
        "trajectory in the weights' dtype",
        (13,),
        "315",
        line(
            ROLLOUT,
            f"{WRAPPER}.step",
            "self._latents.append(prev_sample)",
            "self._latents.append(prev_sample.bfloat16())",
        ),
    ),
    mutant(
        "load_weights yields",
        (24,),
        "313",
        line(
            ROLLOUT,
            f"{PIPELINE}.load_weights",
            "return super().load_weights(self._checkpoint_names(self._summed(weights)))",
            "try:\n    return super().load_weights(self._checkpoint_names(self._summed(weights)))\nexcept ValueError:\n    pass",
        ),
    ),
    mutant(
        "LoRA hook that answers nothing",
        (18,),
        "318",
        define(
            ROLLOUT,
            f"{PIPELINE}.map_lora_update_to_engine",
            "def map_lora_update_to_engine(self, tensors, peft_config):\n    return None",
        ),
    ),
]
