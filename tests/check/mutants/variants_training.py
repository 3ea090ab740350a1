"""Other ways to make the same mistakes in the training adapter."""

from mutants.edit import (
    add,
    argument,
    decorate,
    drop_argument,
    line,
    swap,
)
from mutants.mutant import (
    ROLLOUT,
    TRAINING,
    mutant,
)

ADAPTER = "BagelDiffusion"
STEP = f"{ADAPTER}.forward_and_sample_previous_step"
INPUTS = f"{ADAPTER}.prepare_model_inputs"
PIPELINE = "BagelPipelineWithLogProb"
WRAPPER = "_BagelSchedulerAdapter"
SAMPLE = "scheduler.sample_previous_step"

MUTANTS = [
    # Training adapter
    mutant(
        "registered by calling the decorator on nothing",
        ("T1",),
        "201",
        decorate(TRAINING, ADAPTER),
        add(TRAINING, "", 'DiffusionModelBase.register("OmniBagelForConditionalGeneration", algorithm="flow_grpo")'),
    ),
    mutant("build_module as a plain method", ("T2",), "202 215", decorate(TRAINING, f"{ADAPTER}.build_module")),
    mutant(
        "build_module only for one path",
        ("T2",),
        "202",
        line(
            TRAINING,
            f"{ADAPTER}.build_module",
            "return BagelForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)",
            "if model_config.local_path:\n    return BagelForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)\nreturn None",
        ),
    ),
    mutant(
        "number of steps as a constant",
        ("T3", 30),
        "203 204",
        swap(TRAINING, f"{ADAPTER}.set_timesteps", "model_config.pipeline.num_inference_steps", "15"),
    ),
    mutant(
        "another shift in training",
        ("T3", 30),
        "204",
        line(
            TRAINING,
            f"{ADAPTER}.set_timesteps",
            "setup_bagel_sigmas(scheduler, model_config.pipeline.num_inference_steps, device=device)",
            "setup_bagel_sigmas(scheduler, model_config.pipeline.num_inference_steps, device=device)\nscheduler.set_shift(5.0)\n"
            "scheduler.set_timesteps(model_config.pipeline.num_inference_steps, device=device)",
        ),
    ),
    mutant(
        "None for the unconditional branch",
        ("T4", "T5"),
        "208 212",
        line(
            TRAINING,
            INPUTS,
            'return conditional, {**shared, "text_token_ids": None, "text_attention_mask": None}',
            "return conditional, None",
        ),
        line(TRAINING, STEP, "unconditional = module(**negative_model_inputs)[0].float()", "unconditional = velocity"),
    ),
    mutant("a key in the plural", (27,), "206", swap(TRAINING, INPUTS, '"timestep"', '"timesteps"')),
    mutant(
        "result as a dictionary",
        ("T5",),
        "209",
        line(
            TRAINING,
            STEP,
            "return log_prob, prev_sample_mean, std_dev_t, sqrt_dt",
            'return {"log_prob": log_prob, "mean": prev_sample_mean, "std": std_dev_t, "sqrt_dt": sqrt_dt}',
        ),
    ),
    mutant(
        "first two of the scheduler's values exchanged",
        ("T5",),
        "209",
        line(
            TRAINING,
            STEP,
            "return log_prob, prev_sample_mean, std_dev_t, sqrt_dt",
            "return _, log_prob, prev_sample_mean, std_dev_t",
        ),
    ),
    mutant(
        "branches exchanged when called",
        ("T5",),
        "221",
        swap(
            TRAINING,
            STEP,
            "guide(velocity, unconditional, timesteps[:, step], guidance)",
            "guide(conditional=unconditional, unconditional=velocity, sigma=timesteps[:, step], guidance=guidance)",
        ),
    ),
    mutant(
        "normaliser from a constant of the adapter",
        (7,),
        "210",
        add(TRAINING, "", "WITH_NORMALIZER = True", first=True),
        argument(TRAINING, STEP, SAMPLE, "include_logprob_normalizer", "WITH_NORMALIZER"),
    ),
    mutant(
        "normaliser True in the rollout",
        (7,),
        "210",
        argument(ROLLOUT, f"{WRAPPER}.step", "self.inner.step", "include_logprob_normalizer", "True"),
    ),
    mutant("noise level dropped in training", (7,), "211", drop_argument(TRAINING, STEP, SAMPLE, "noise_level")),
    mutant(
        "guidance constants copied into the rollout",
        (29,),
        "205 316",
        line(
            ROLLOUT,
            f"{PIPELINE}.forward",
            "extra_args.update(resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS}))",
            'extra_args.update({"cfg_text_scale": 4.0, "cfg_img_scale": 1.0, "cfg_interval": (0.0, 1.0), "cfg_renorm_type": "global", "cfg_renorm_min": 0.0})',
        ),
    ),
    mutant(
        "module unwrapped for nothing",
        (35,),
        "214",
        swap(TRAINING, INPUTS, 'getattr(module, "module", module).config', "module.module.config"),
    ),
    mutant(
        "instance state through a property",
        (40,),
        "215",
        line(
            TRAINING,
            STEP,
            "velocity = module(**model_inputs)[0].float()",
            "velocity = module(**model_inputs)[0].float()\ncls.last_velocity = velocity.detach()",
        ),
    ),
    mutant(
        "scheduler fed with the model's dtype",
        (13,),
        "213",
        argument(TRAINING, STEP, SAMPLE, "sample", "latents[:, step].to(torch.bfloat16)"),
    ),
]
