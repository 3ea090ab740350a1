"""The training step: guidance, log-prob, precision, state."""

from mutants.edit import add, argument, drop_argument, line, swap
from mutants.mutant import COMMON, ROLLOUT, TRAINING, mutant

ADAPTER = "BagelDiffusion"
SCHEDULER = f"{ADAPTER}.build_scheduler"
INPUTS = f"{ADAPTER}.prepare_model_inputs"
STEP = f"{ADAPTER}.forward_and_sample_previous_step"
SAMPLE = "scheduler.sample_previous_step"
RESULT = "return log_prob, prev_sample_mean, std_dev_t, sqrt_dt"
NEGATIVE = """
if guidance["cfg_text_scale"] > 1.0:
    if negative_model_inputs is None:
        raise ValueError("cfg_text_scale is above 1, which needs negative_model_inputs")
    unconditional = module(**negative_model_inputs)[0].float()
    velocity = guide(velocity, unconditional, timesteps[:, step], guidance)
"""
RESOLVED = "resolve_guidance({name: getattr(model_config.pipeline, name, None) for name in CFG_DEFAULTS})"

MUTANTS = [
    # Step
    mutant(
        "result in the scheduler's order",
        ("T5",),
        "209",
        line(TRAINING, STEP, RESULT, "return prev_sample_mean, log_prob, std_dev_t, sqrt_dt"),
    ),
    mutant(
        "three values returned",
        ("T5",),
        "209",
        line(TRAINING, STEP, RESULT, "return log_prob, prev_sample_mean, std_dev_t"),
    ),
    mutant("return_sqrt_dt not asked for", ("T5",), "209", drop_argument(TRAINING, STEP, SAMPLE, "return_sqrt_dt")),
    mutant(
        "last two values exchanged",
        ("T5",),
        "209",
        line(TRAINING, STEP, RESULT, "return log_prob, prev_sample_mean, sqrt_dt, std_dev_t"),
    ),
    mutant("no guidance in training", ("T5",), "212", line(TRAINING, STEP, NEGATIVE)),
    mutant(
        "unconditional velocity from the conditional inputs",
        ("T5",),
        "212",
        swap(TRAINING, STEP, "module(**negative_model_inputs)", "module(**model_inputs)"),
    ),
    mutant(
        "branches exchanged for the guidance",
        ("T5",),
        "221",
        swap(
            TRAINING,
            STEP,
            "guide(velocity, unconditional, timesteps[:, step], guidance)",
            "guide(unconditional, velocity, timesteps[:, step], guidance)",
        ),
    ),
    mutant(
        "branches exchanged in the formula",
        ("T5",),
        "221",
        swap(
            TRAINING,
            "guide",
            'unconditional + guidance["cfg_text_scale"] * (conditional - unconditional)',
            'conditional + guidance["cfg_text_scale"] * (unconditional - conditional)',
        ),
    ),
    mutant(
        "next sample and sample exchanged",
        ("T5",),
        "220",
        argument(TRAINING, STEP, SAMPLE, "sample", "latents[:, step + 1].float()"),
        argument(TRAINING, STEP, SAMPLE, "prev_sample", "latents[:, step].float()"),
    ),
    mutant(
        "the same sample twice",
        ("T5",),
        "220",
        argument(TRAINING, STEP, SAMPLE, "prev_sample", "latents[:, step].float()"),
    ),
    # Both sides alike
    mutant(
        "normaliser written as True in training",
        (7,),
        "210",
        argument(TRAINING, STEP, SAMPLE, "include_logprob_normalizer", "True"),
    ),
    mutant(
        "normaliser left to its default in training",
        (7,),
        "210",
        drop_argument(TRAINING, STEP, SAMPLE, "include_logprob_normalizer"),
    ),
    mutant(
        "normaliser left to its default in the rollout",
        (7,),
        "210",
        drop_argument(ROLLOUT, "_BagelSchedulerAdapter.step", "self.inner.step", "include_logprob_normalizer"),
    ),
    mutant("sde_type left to its default in training", (7,), "211", drop_argument(TRAINING, STEP, SAMPLE, "sde_type")),
    mutant("noise level as a number in training", (7,), "211", argument(TRAINING, STEP, SAMPLE, "noise_level", "0.7")),
    mutant("sde_type as a word in training", (7,), "211", argument(TRAINING, STEP, SAMPLE, "sde_type", '"cps"')),
    mutant(
        "sde_type forgotten in the rollout",
        (7,),
        "211",
        swap(
            ROLLOUT,
            "_BagelSchedulerAdapter.begin",
            '{"noise_level": noise_level, "sde_type": sde_type, "return_logprobs": record_log_probs}',
            '{"noise_level": noise_level, "return_logprobs": record_log_probs}',
        ),
    ),
    mutant(
        "guidance constants of training's own",
        (29,),
        "205 316",
        line(
            TRAINING,
            "",
            "logger = logging.getLogger(__name__)",
            'logger = logging.getLogger(__name__)\nCFG_DEFAULTS = {"cfg_text_scale": 3.0, "cfg_img_scale": 1.0,'
            ' "cfg_interval": (0.0, 1.0), "cfg_renorm_type": "global", "cfg_renorm_min": 0.0}',
        ),
    ),
    mutant(
        "scale with a fallback in training",
        (29,),
        "205",
        swap(
            TRAINING,
            STEP,
            RESOLVED,
            "{**" + RESOLVED + ', "cfg_text_scale": getattr(model_config.pipeline, "cfg_text_scale", 3.0)}',
        ),
    ),
    mutant(
        "scale with a fallback in the rollout",
        (29,),
        "205 316",
        line(
            ROLLOUT,
            "BagelPipelineWithLogProb.forward",
            "extra_args.update(resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS}))",
            'extra_args.setdefault("cfg_text_scale", 4.0)\nextra_args.setdefault("cfg_renorm_type", "global")',
        ),
    ),
    mutant(
        "guidance not passed on to the pipeline",
        (29,),
        "316",
        line(
            ROLLOUT,
            "BagelPipelineWithLogProb.forward",
            "extra_args.update(resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS}))",
        ),
    ),
    mutant(
        "interval kept in a list",
        (41,),
        "219",
        swap(COMMON, "", "(0.0, 1.0)", "[0.0, 1.0]"),
        line(COMMON, "resolve_guidance", 'values["cfg_interval"] = (float(interval[0]), float(interval[1]))'),
    ),
    # Precision
    mutant(
        "next sample in the trajectory's precision",
        (13,),
        "213",
        argument(TRAINING, STEP, SAMPLE, "prev_sample", "latents[:, step + 1]"),
    ),
    mutant(
        "velocity in the module's precision",
        (13,),
        "213",
        swap(TRAINING, STEP, "module(**model_inputs)[0].float()", "module(**model_inputs)[0]"),
        swap(TRAINING, STEP, "module(**negative_model_inputs)[0].float()", "module(**negative_model_inputs)[0]"),
    ),
    # State
    mutant(
        "adapter with __init__",
        (40,),
        "215",
        add(TRAINING, ADAPTER, "def __init__(self, model_config):\n    self.model_config = model_config"),
    ),
    mutant(
        "scheduler kept on the class",
        (40,),
        "215",
        line(TRAINING, SCHEDULER, "return scheduler", "cls._scheduler = scheduler\nreturn scheduler"),
    ),
    mutant(
        "inputs kept in a dictionary of the class",
        (40,),
        "215",
        add(TRAINING, ADAPTER, "_cache: dict[int, Any] = {}", first=True),
        line(
            TRAINING,
            INPUTS,
            'config = getattr(module, "module", module).config',
            'config = getattr(module, "module", module).config\ncls._cache[step] = config',
        ),
    ),
    mutant(
        "step kept on the adapter",
        (40,),
        "215",
        line(
            TRAINING,
            STEP,
            "velocity = module(**model_inputs)[0].float()",
            "velocity = module(**model_inputs)[0].float()\nBagelDiffusion.last_step = step",
        ),
    ),
    # Batch
    mutant(
        "guidance decided by the first sample",
        ("T5",),
        "217",
        line(
            TRAINING,
            "guide",
            "return torch.where(active.view(-1, 1, 1), guided, conditional)",
            "if not (low < float(sigma[0]) <= high):\n    guided = conditional\nreturn guided",
        ),
    ),
    mutant(
        "trains nothing without LoRA",
        (19,),
        "218",
        swap(TRAINING, f"{ADAPTER}.configure_trainable_params", '"moe_gen" in name', '"moe_generation" in name'),
    ),
    mutant("device as a word in the scheduler", (38,), "126", swap(TRAINING, SCHEDULER, "get_device_name()", '"cuda"')),
]
