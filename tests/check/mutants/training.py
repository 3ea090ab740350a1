"""The training adapter: registration, module, schedule, inputs, guidance, log-prob."""

from mutants.edit import add, argument, decorate, define, drop_argument, line, rename, signature, swap
from mutants.mutant import COMMON, MODEL, ROLLOUT, TRAINING, mutant

ADAPTER = "BagelDiffusion"
BUILD = f"{ADAPTER}.build_module"
SCHEDULER = f"{ADAPTER}.build_scheduler"
TIMESTEPS = f"{ADAPTER}.set_timesteps"
INPUTS = f"{ADAPTER}.prepare_model_inputs"
STEP = f"{ADAPTER}.forward_and_sample_previous_step"
COLUMN = f"{ADAPTER}._prompt_token_ids_to_batch"
SAMPLE = "scheduler.sample_previous_step"
LOADED = "return BagelForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)"
SHARED = "setup_bagel_sigmas(scheduler, model_config.pipeline.num_inference_steps, device=device)"
PAIR = 'return conditional, {**shared, "text_token_ids": None, "text_attention_mask": None}'
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
    # Registration
    mutant("training adapter not registered", ("T1",), "201", decorate(TRAINING, ADAPTER)),
    mutant(
        "registered without an algorithm",
        ("T1",),
        "201 509",
        decorate(TRAINING, ADAPTER, 'DiffusionModelBase.register("OmniBagelForConditionalGeneration")'),
    ),
    mutant(
        "registered for another algorithm",
        ("T1",),
        "509",
        decorate(
            TRAINING, ADAPTER, 'DiffusionModelBase.register("OmniBagelForConditionalGeneration", algorithm="mix_grpo")'
        ),
    ),
    mutant("register not called", ("T1",), "201", decorate(TRAINING, ADAPTER, "DiffusionModelBase.register")),
    mutant(
        "registered with the rollout's register",
        ("T1",),
        "201 501 302 301",
        decorate(
            TRAINING,
            ADAPTER,
            'VllmOmniPipelineBase.register("OmniBagelForConditionalGeneration", algorithm="flow_grpo")',
        ),
        add(TRAINING, "", "from verl_omni.pipelines.model_base import VllmOmniPipelineBase", first=True),
    ),
    # Module
    mutant("no build_module", ("T2",), "202", define(TRAINING, BUILD, "")),
    mutant(
        "build_module forgets to return", ("T2",), "202", line(TRAINING, BUILD, LOADED, LOADED.removeprefix("return "))
    ),
    mutant(
        "module built with random weights",
        ("T2",),
        "202",
        line(
            TRAINING,
            BUILD,
            LOADED,
            "return BagelForTraining(BagelTrainingConfig.from_model_path(model_config.local_path))",
        ),
    ),
    mutant("build_module returns None", ("T2",), "202", line(TRAINING, BUILD, LOADED, "return None")),
    mutant("build_module named otherwise", ("T2",), "202", rename(TRAINING, ADAPTER, "build_module", "build_model")),
    mutant(
        "diffusers loads the module",
        ("T2",),
        "202 101",
        line(
            TRAINING,
            BUILD,
            LOADED,
            "return AutoModel.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)",
        ),
        add(TRAINING, "", "from diffusers import AutoModel", first=True),
    ),
    # Schedule
    mutant("no build_scheduler", ("T3",), "203", define(TRAINING, SCHEDULER, "")),
    mutant("no set_timesteps", ("T3",), "203", define(TRAINING, TIMESTEPS, "")),
    mutant(
        "scheduler built without its schedule",
        ("T3",),
        "203",
        line(TRAINING, SCHEDULER, "cls.set_timesteps(scheduler, model_config, get_device_name())"),
    ),
    mutant("set_timesteps left empty", ("T3",), "203", line(TRAINING, TIMESTEPS, SHARED)),
    mutant(
        "schedule of its own in training",
        ("T3", 30),
        "204",
        line(
            TRAINING,
            TIMESTEPS,
            SHARED,
            """
steps = model_config.pipeline.num_inference_steps
t = torch.linspace(1, 0, steps)
sigmas = (3.0 * t / (1 + 2.0 * t))[:-1].tolist()
scheduler.set_timesteps(sigmas=sigmas, device=device)
""",
        ),
    ),
    mutant(
        "schedule without shift in training",
        ("T3", 30),
        "204 203",
        line(
            TRAINING,
            TIMESTEPS,
            SHARED,
            "scheduler.set_timesteps(model_config.pipeline.num_inference_steps, device=device)",
        ),
    ),
    mutant(
        "schedule of its own in the rollout",
        (30,),
        "204",
        line(
            ROLLOUT,
            "_BagelSchedulerAdapter.begin",
            "count = len(setup_bagel_sigmas(self.inner, num_inference_steps))",
            """
t = torch.linspace(1, 0, num_inference_steps)
sigmas = (3.0 * t / (1 + 2.0 * t))[:-1].tolist()
self.inner.set_shift(1.0)
self.inner.set_timesteps(sigmas=sigmas)
count = len(sigmas)
""",
        ),
    ),
    mutant(
        "a copy of the schedule beside the adapter",
        (30,),
        "204",
        add(
            TRAINING,
            "",
            """
def training_sigmas(steps: int) -> list[float]:
    t = torch.linspace(1, 0, steps, dtype=torch.float32)
    return (3.0 * t / (1 + 2.0 * t))[:-1].tolist()
""",
        ),
        line(
            TRAINING,
            TIMESTEPS,
            SHARED,
            """
scheduler.set_timesteps(sigmas=training_sigmas(model_config.pipeline.num_inference_steps), device=device)
scheduler.timesteps = scheduler.sigmas[:-1].clone()
""",
        ),
    ),
    # Inputs
    mutant("one dictionary instead of a pair", ("T4",), "208", line(TRAINING, INPUTS, PAIR, "return conditional")),
    mutant("three dictionaries", ("T4",), "208", line(TRAINING, INPUTS, PAIR, PAIR + ", shared")),
    mutant(
        "pair in the wrong order",
        ("T4", "T5"),
        "208 221 212",
        line(
            TRAINING,
            INPUTS,
            PAIR,
            'return {**shared, "text_token_ids": None, "text_attention_mask": None}, conditional',
        ),
    ),
    mutant(
        "inputs under the wrong key",
        ("T4", 27),
        "206",
        swap(TRAINING, INPUTS, '"latent_pos_ids"', '"latent_position_ids"'),
    ),
    mutant(
        "text ids missing in one branch",
        ("T4", 27),
        "206",
        line(TRAINING, INPUTS, PAIR, 'return conditional, {**shared, "text_attention_mask": None}'),
    ),
    mutant(
        "mask under the name of another model",
        (27,),
        "206",
        line(
            TRAINING,
            INPUTS,
            'conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}',
            "conditional = dict(shared, text_token_ids=ids, encoder_attention_mask=mask)",
        ),
    ),
    mutant(
        "forward renames a parameter",
        (27,),
        "206",
        rename(MODEL, "BagelForTraining.forward", "latent_pos_ids", "position_ids"),
    ),
    mutant(
        "forward wants one argument more",
        (27,),
        "206",
        signature(
            MODEL,
            "BagelForTraining.forward",
            "def forward(self, hidden_states: Tensor, timestep: Tensor, text_token_ids: Tensor | None,"
            " latent_pos_ids: Tensor, guidance: Tensor, text_attention_mask: Tensor | None = None)",
        ),
    ),
    mutant(
        "key added by update()",
        (27,),
        "206",
        line(
            TRAINING,
            INPUTS,
            'conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}',
            'conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}\nconditional["step"] = step',
        ),
    ),
    mutant(
        "mask left out for the conditional branch",
        (8,),
        "206 117",
        line(
            TRAINING,
            INPUTS,
            'conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}',
            'conditional = {**shared, "text_token_ids": ids}',
        ),
    ),
    mutant(
        "column that nobody writes",
        ("D2", 28, "T4"),
        "207",
        swap(TRAINING, COLUMN, '"prompt_token_ids" in micro_batch.keys()', '"caption_ids" in micro_batch.keys()'),
        swap(TRAINING, f"{ADAPTER}._unwrap_column", 'micro_batch["prompt_token_ids"]', 'micro_batch["caption_ids"]'),
    ),
    mutant(
        "reads the prompt's embeddings of another stage",
        (28,),
        "207",
        line(
            TRAINING,
            INPUTS,
            "ids, mask = cls._prompt_token_ids_to_batch(micro_batch, latents.device)",
            'ids, mask = micro_batch["text_input_ids"], micro_batch["text_input_mask"]',
        ),
    ),
    mutant(
        "get() of a key that nobody writes",
        (28,),
        "207",
        line(
            TRAINING,
            COLUMN,
            "lengths = [len(row) for row in rows]",
            'lengths = [len(row) for row in rows]\nif micro_batch.get("prompt_lengths") is not None:\n'
            '    lengths = micro_batch["prompt_lengths"].tolist()',
        ),
    ),
    mutant(
        "sigmas expected from the rollout",
        (28,),
        "207",
        line(
            TRAINING,
            INPUTS,
            'config = getattr(module, "module", module).config',
            'config = getattr(module, "module", module).config\ntimesteps = micro_batch["rollout_sigmas"]',
        ),
    ),
    mutant(
        "mask of ones after padding",
        (9,),
        "216 117",
        line(
            TRAINING,
            COLUMN,
            "return ids, torch.arange(ids.shape[1], device=device) < torch.tensor(lengths, device=device)[:, None]",
            "return ids, torch.ones_like(ids, dtype=torch.bool)",
        ),
    ),
    mutant(
        "mask of ones with torch.ones",
        (9,),
        "216 117",
        line(
            TRAINING,
            COLUMN,
            "return ids, torch.arange(ids.shape[1], device=device) < torch.tensor(lengths, device=device)[:, None]",
            "mask = torch.ones(ids.shape, dtype=torch.bool, device=device)\nreturn ids, mask",
        ),
    ),
    mutant(
        "mask of ones in the inputs",
        (9,),
        "216 117",
        line(
            TRAINING,
            INPUTS,
            'conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}',
            'conditional = {**shared, "text_token_ids": ids, "text_attention_mask": torch.ones_like(ids)}',
        ),
    ),
    mutant(
        "config read from the wrapped module",
        (35,),
        "214",
        swap(TRAINING, INPUTS, 'getattr(module, "module", module).config', "module.config"),
    ),
    mutant(
        "dtype asked of the wrapped module's layer",
        (35,),
        "214",
        line(
            TRAINING,
            STEP,
            "velocity = module(**model_inputs)[0].float()",
            'model_inputs = {**model_inputs, "hidden_states": model_inputs["hidden_states"].to(module.embed_tokens.weight.dtype)}\n'
            "velocity = module(**model_inputs)[0].float()",
        ),
    ),
    mutant(
        "table size asked of the wrapped module",
        (35,),
        "214",
        swap(
            TRAINING,
            INPUTS,
            "cls._latent_pos_ids(config, model_config, latents)",
            "cls._latent_pos_ids(config, model_config, latents) % module.latent_pos_embed.pos_embed.shape[0]",
        ),
    ),
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
            "guided = torch.where(active.view(-1, 1, 1), guided, conditional)",
            "if not (low < float(sigma[0]) <= high):\n    guided = conditional",
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
