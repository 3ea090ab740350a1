"""Other ways to make the same mistakes: values that travel, helpers, aliases, early returns, half-done edits."""

from mutants.edit import (
    add,
    argument,
    bases,
    decorate,
    define,
    delete,
    drop_argument,
    line,
    swap,
    text,
)
from mutants.mutant import (
    COMMON,
    DATA,
    DUMMY,
    E2E,
    INIT,
    LAUNCH,
    MODEL,
    PATCH,
    ROLLOUT,
    TRAINING,
    mutant,
)

MODULE = "BagelForTraining"
FORWARD = f"{MODULE}.forward"
LOAD = f"{MODULE}.from_pretrained"
ATTENTION = "BagelAttention.forward"
ADAPTER = "BagelDiffusion"
STEP = f"{ADAPTER}.forward_and_sample_previous_step"
INPUTS = f"{ADAPTER}.prepare_model_inputs"
PIPELINE = "BagelPipelineWithLogProb"
WRAPPER = "_BagelSchedulerAdapter"
SAMPLE = "scheduler.sample_previous_step"
LAYER_LOOP = (
    "for layer in self.layers:\n    context, latents = self._checkpointed_call(layer, context, latents, layout)"
)
LOADED = "check_state(model.state_dict(), state, model_path)\nmodel.load_state_dict(state, strict=True, assign=True)"
FINISHED = "latents, timesteps, log_probs = self.scheduler.finish()"
PLUS = "    +actor_rollout_ref.model.architecture=OmniBagelForConditionalGeneration\n"

MUTANTS = [
    # Module
    mutant(
        "another decorator for the dataclass",
        ("M1",),
        "112",
        decorate(MODEL, "BagelTrainingConfig", "dataclasses_json"),
    ),
    mutant(
        "config as a dictionary",
        ("M1",),
        "112",
        decorate(MODEL, "BagelTrainingConfig"),
        bases(MODEL, "BagelTrainingConfig", "dict"),
    ),
    mutant(
        "an alias of nn.Module as the base",
        ("M2",),
        "101",
        line(
            MODEL,
            "",
            'CHECKPOINT_FILES: tuple[str, ...] = ("ema.safetensors",)',
            'CHECKPOINT_FILES: tuple[str, ...] = ("ema.safetensors",)\nBase = nn.Module',
        ),
        bases(MODEL, MODULE, "Base"),
    ),
    mutant("_no_split_modules set to None", ("M3",), "102 103", swap(MODEL, MODULE, '["BagelMoTLayer"]', "None")),
    mutant("attention not split", ("M3",), "103", swap(MODEL, MODULE, '["BagelMoTLayer"]', '["BagelAttention"]')),
    mutant("a tuple of wrong names", ("M3", 32), "103", swap(MODEL, MODULE, '["BagelMoTLayer"]', '("MoTLayer",)')),
    mutant(
        "checkpointing switched off in __init__",
        ("M4",),
        "104 105",
        add(MODEL, f"{MODULE}.__init__", "self._supports_gradient_checkpointing = False"),
    ),
    mutant(
        "checkpoint_sequential",
        ("M5", 10),
        "105 106 107",
        line(
            MODEL,
            FORWARD,
            LAYER_LOOP,
            """
for layer in self.layers:
    context, latents = torch.utils.checkpoint.checkpoint(layer, context, latents, layout)
""",
        ),
    ),
    mutant(
        "from_pretrained under no strictness at all",
        ("M6", 3),
        "109",
        line(
            MODEL,
            LOAD,
            LOADED,
            """
options = {"strict": False, "assign": True}
model.load_state_dict(state, **options)
""",
        ),
    ),
    mutant(
        "strict=False, a warning for both",
        (3,),
        "109",
        line(
            MODEL,
            LOAD,
            LOADED,
            """
missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
if missing or unexpected:
    import warnings
    warnings.warn(f"missing {missing}, unexpected {unexpected}")
""",
        ),
    ),
    mutant(
        "loading helper with strict=False",
        (3,),
        "109",
        add(MODEL, "", "def _load_into(model, state):\n    model.load_state_dict(state, strict=False, assign=True)"),
        line(MODEL, LOAD, LOADED, "_load_into(model, state)"),
    ),
    mutant(
        "pop of what does not fit",
        (3, 22),
        "405 109",
        line(
            MODEL,
            LOAD,
            LOADED,
            """
for name in list(state):
    if name not in model.state_dict():
        state.pop(name)
model.load_state_dict(state, strict=True, assign=True)
""",
        ),
    ),
    mutant(
        "moved to the device before loading",
        (4,),
        "110",
        line(MODEL, LOAD, 'with torch.device("meta"):\n    model = cls(config)', "model = cls(config).to(torch_dtype)"),
        line(MODEL, LOAD, "model.load_state_dict(state, strict=True, assign=True)", "model.load_state_dict(state)"),
    ),
    mutant(
        "time embedding computed and not added",
        ("M7",),
        "121",
        line(
            MODEL,
            FORWARD,
            "latents = latents + self.time_embedder(features.to(context.dtype))[:, None]",
            "features = features.to(context.dtype)",
        ),
    ),
    mutant(
        "keys of the latents from the text",
        ("M8",),
        "121 127",
        swap(MODEL, ATTENTION, "self.k_proj_moe_gen", "self.k_proj"),
    ),
    mutant(
        "norm of the latents before attention from the text",
        ("M8",),
        "121 127",
        swap(MODEL, "BagelMoTLayer.forward", "self.input_layernorm_moe_gen", "self.input_layernorm"),
    ),
    mutant(
        "boundary tokens by their config, swapped for literals in a helper",
        ("M9",),
        "122 123",
        add(MODEL, "", "def _markers():\n    return 151652, 151653"),
        swap(MODEL, FORWARD, "(self.config.start_of_image_id, self.config.end_of_image_id)", "_markers()"),
    ),
    mutant(
        "velocity in a list of one by a name",
        (39,),
        "108",
        line(
            MODEL,
            FORWARD,
            "return (self.llm2vae(self.norm_moe_gen(latents)),)",
            "out = [self.llm2vae(self.norm_moe_gen(latents))]\nreturn out",
        ),
    ),
    mutant(
        "parentheses without a comma",
        (39,),
        "108",
        line(
            MODEL,
            FORWARD,
            "return (self.llm2vae(self.norm_moe_gen(latents)),)",
            "return (self.llm2vae(self.norm_moe_gen(latents)))",
        ),
    ),
    mutant(
        "numpy on the way",
        (42,),
        "116",
        line(
            MODEL,
            FORWARD,
            "batch, device = hidden_states.shape[0], hidden_states.device",
            "batch, device = hidden_states.shape[0], hidden_states.device\nlevel = timestep.cpu().numpy()",
        ),
    ),
    mutant(
        "float() of a tensor",
        (42,),
        "116",
        line(
            MODEL,
            FORWARD,
            "batch, device = hidden_states.shape[0], hidden_states.device",
            "batch, device = hidden_states.shape[0], hidden_states.device\nlevel = float(timestep.max())",
        ),
    ),
    mutant(
        "if on a tensor",
        (42,),
        "116",
        line(
            MODEL,
            FORWARD,
            "batch, device = hidden_states.shape[0], hidden_states.device",
            "batch, device = hidden_states.shape[0], hidden_states.device\nif (timestep > 1).any():\n    raise ValueError('noise level')",
        ),
    ),
    mutant(
        "masked_select in a layer",
        (42,),
        "116",
        line(
            MODEL,
            "BagelMoTLayer.forward",
            "latents = latents + latents_update",
            "latents = latents + latents_update\nif layout.key_mask is not None:\n    kept = torch.masked_select(context, layout.key_mask[:, : context.shape[1], None])",
        ),
    ),
    mutant(
        "addmm with the weight",
        (34,),
        "120",
        swap(MODEL, "BagelMLP.forward", "self.up_proj(x)", "torch.matmul(x, self.up_proj.weight.T)"),
    ),
    mutant(
        "weight by getattr of a name",
        (34,),
        "120",
        line(
            MODEL,
            ATTENTION,
            "q_latents = self.q_proj_moe_gen(latents).unflatten(-1, heads)",
            "proj = self.q_proj_moe_gen\nq_latents = F.linear(latents, proj.weight, proj.bias).unflatten(-1, heads)",
        ),
    ),
    mutant(
        "timestep as an index",
        (33,),
        "124",
        line(MODEL, "timestep_features", "half = 256 // 2", "half = 256 // 2\ntimestep = timestep.to(torch.long)"),
    ),
    mutant(
        "timestep floored",
        (33,),
        "124",
        line(MODEL, "timestep_features", "half = 256 // 2", "half = 256 // 2\ntimestep = torch.floor(timestep * 1000)"),
    ),
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
            'pick_sde_window(extra_args.get("sde_window_size"), extra_args.get("sde_window_range"))',
            'pick_sde_window(2, extra_args.get("sde_window_range"))',
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
        swap(
            COMMON, "pick_sde_window", 'random.Random(int(os.environ["LOCAL_RANK"]))', "random.Random(time.time_ns())"
        ),
    ),
    mutant(
        "window from numpy",
        (15,),
        "308",
        add(COMMON, "", "import numpy as np", first=True),
        swap(
            COMMON,
            "pick_sde_window",
            'random.Random(int(os.environ["LOCAL_RANK"])).randint(low, latest)',
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
    # Around it
    mutant(
        "package imports from a module that is not there",
        ("W1",),
        "503",
        line(
            INIT,
            "",
            "from .vllm_omni_rollout_adapter import BagelPipelineWithLogProb",
            "from .rollout import BagelPipelineWithLogProb",
        ),
    ),
    mutant(
        "registry imports another name",
        ("W2", 25),
        "502",
        text(PATCH, "+from .bagel_flow_grpo import *", "+from .bagel_flowgrpo import *"),
    ),
    mutant(
        "deploy config as an empty variable",
        ("W4",),
        "505 510",
        text(
            LAUNCH,
            'DEPLOY_CONFIG=${DEPLOY_CONFIG:-"$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/bagel_deploy_config.yaml"}',
            "DEPLOY_CONFIG=",
        ),
    ),
    mutant(
        "architecture of the config file",
        ("W5",),
        "506",
        text(LAUNCH, PLUS, PLUS.replace("OmniBagelForConditionalGeneration", "BagelForConditionalGeneration")),
    ),
    mutant("override commented out", ("W5",), "506", text(E2E, PLUS, "    #" + PLUS.lstrip())),
    mutant(
        "prompt under content",
        ("D1",),
        "601",
        swap(
            DATA, "build_row", '[{"role": "user", "content": text.strip()}]', '[{"role": "user", "text": text.strip()}]'
        ),
    ),
    mutant(
        "messages as tuples",
        ("D1",),
        "601",
        swap(DATA, "build_row", '[{"role": "user", "content": text.strip()}]', '[("user", text.strip())]'),
    ),
    mutant(
        "special tokens added by the tokenizer",
        ("D2",),
        "603",
        swap(
            DATA,
            "tokenize_bagel_prompt",
            "tokenizer.encode(text.strip(), add_special_tokens=False)",
            "tokenizer.encode(text.strip())",
        ),
    ),
    mutant(
        "ids cut while joined",
        (43,),
        "602",
        line(
            DATA,
            "tokenize_bagel_prompt",
            "ids = [_token_id(tokenizer, BEGIN_TOKEN), *ids, _token_id(tokenizer, END_TOKEN)]",
            "ids = [_token_id(tokenizer, BEGIN_TOKEN), *ids[: max_length - 2], _token_id(tokenizer, END_TOKEN)]",
        ),
    ),
    mutant("dummy script gone, rows made inline", ("S1",), "510 702", delete(DUMMY)),
    mutant(
        "smoke test trains another package", ("S1",), "506 702", text(E2E, PLUS, PLUS.replace("OmniBagel", "OmniFlux"))
    ),
    mutant(
        "runner names the script with another folder",
        ("S2", 37),
        "701",
        text(PATCH, "bash tests/special_e2e/run_flowgrpo_bagel.sh", "bash tests/e2e/run_bagel_flowgrpo.sh"),
    ),
]
