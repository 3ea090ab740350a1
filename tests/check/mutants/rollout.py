"""The rollout adapter: registration, scheduler, prompt, window, trajectory, weights, LoRA."""

from mutants.edit import (
    add,
    argument,
    bases,
    decorate,
    define,
    drop_argument,
    line,
    rename,
    signature,
    swap,
)
from mutants.mutant import COMMON, ROLLOUT, mutant

PIPELINE = "BagelPipelineWithLogProb"
INIT = f"{PIPELINE}.__init__"
FORWARD = f"{PIPELINE}.forward"
ENSURE = f"{PIPELINE}._ensure_bagel_prompt_text"
DECODE = f"{PIPELINE}._decode_prompt"
LORA = f"{PIPELINE}.map_lora_update_to_engine"
WRAPPER = "_BagelSchedulerAdapter"
BEGIN, STEP, FINISH = f"{WRAPPER}.begin", f"{WRAPPER}.step", f"{WRAPPER}.finish"
INNER = "self.inner.step"
REGISTER = 'VllmOmniPipelineBase.register("OmniBagelForConditionalGeneration", algorithm="flow_grpo")'
OWN_SCHEDULER = "self.scheduler = _BagelSchedulerAdapter()"
WINDOW = 'window = pick_sde_window(extra_args.get("sde_window_size"), extra_args.get("sde_window_range"))'
STEPS = "requested_steps = int(params.num_inference_steps)"
LOG_PROBS = "log_probs = torch.stack(self._log_probs, dim=1).cpu() if self._log_probs else None"
FINISHED = "latents, timesteps, log_probs = self.scheduler.finish()"
DRAW = 'begin = random.Random(int(os.environ["LOCAL_RANK"])).randint(low, latest) if latest > low else low'
AUDIT = "return super().load_weights(self._checkpoint_names(self._summed(weights)))"

MUTANTS = [
    # Registration and base
    mutant("rollout adapter not registered", ("R1",), "301", decorate(ROLLOUT, PIPELINE)),
    mutant(
        "rollout registered without an algorithm",
        ("R1",),
        "301 509",
        decorate(ROLLOUT, PIPELINE, 'VllmOmniPipelineBase.register("OmniBagelForConditionalGeneration")'),
    ),
    mutant(
        "rollout's register not called", ("R1",), "301", decorate(ROLLOUT, PIPELINE, "VllmOmniPipelineBase.register")
    ),
    mutant(
        "rollout registered for another algorithm",
        ("R1",),
        "509",
        decorate(
            ROLLOUT, PIPELINE, 'VllmOmniPipelineBase.register("OmniBagelForConditionalGeneration", algorithm="grpo")'
        ),
    ),
    mutant(
        "the contract's base instead of the pipeline", ("R2",), "302", bases(ROLLOUT, PIPELINE, "VllmOmniPipelineBase")
    ),
    mutant("no upstream pipeline among the bases", ("R2",), "302", bases(ROLLOUT, PIPELINE, "torch.nn.Module")),
    mutant(
        "pipeline held instead of inherited",
        ("R2",),
        "302",
        bases(ROLLOUT, PIPELINE),
        line(
            ROLLOUT,
            INIT,
            "super().__init__(od_config=od_config, prefix=prefix)",
            "self.pipeline = BagelPipeline(od_config=od_config, prefix=prefix)",
        ),
        swap(ROLLOUT, FORWARD, "super().forward(req)", "self.pipeline.forward(req)"),
    ),
    # Scheduler
    mutant("scheduler not replaced", ("R3",), "303", line(ROLLOUT, INIT, OWN_SCHEDULER)),
    mutant(
        "scheduler not wrapped",
        ("R3",),
        "303",
        swap(ROLLOUT, INIT, "_BagelSchedulerAdapter()", "FlowMatchSDEDiscreteScheduler()"),
    ),
    mutant("scheduler under another name", ("R3",), "303", rename(ROLLOUT, PIPELINE, "scheduler", "sde_scheduler")),
    mutant(
        "wrapper without the step size",
        ("R3",),
        "303",
        signature(
            ROLLOUT,
            STEP,
            "def step(self, model_output: torch.Tensor, sigma: torch.Tensor | float, sample: torch.Tensor)",
        ),
    ),
    mutant(
        "wrapper that takes its arguments by name",
        ("R3",),
        "303",
        signature(ROLLOUT, STEP, "def step(self, *, model_output, sigma, sample, dt=None, **kwargs)"),
    ),
    mutant(
        "step not batched",
        ("R4",),
        "304",
        swap(ROLLOUT, STEP, "sample.float()[None]", "sample.float()"),
        argument(ROLLOUT, STEP, INNER, "model_output", "model_output.float()"),
    ),
    mutant(
        "velocity not batched", ("R4",), "304", argument(ROLLOUT, STEP, INNER, "model_output", "model_output.float()")
    ),
    mutant("sample not batched", ("R4",), "304", swap(ROLLOUT, STEP, "sample.float()[None]", "sample.float()")),
    mutant(
        "batched at the wrong dimension",
        ("R4",),
        "304",
        swap(ROLLOUT, STEP, "sample.float()[None]", "sample.float()[:, None]"),
        argument(ROLLOUT, STEP, INNER, "model_output", "model_output.float()[:, None]"),
    ),
    mutant(
        "tokens as the batch",
        ("R4",),
        "304",
        swap(ROLLOUT, STEP, "sample.float()[None]", "sample.float().unsqueeze(1)"),
        argument(ROLLOUT, STEP, INNER, "model_output", "model_output.float().unsqueeze(1)"),
    ),
    # Prompt
    mutant("prompt's text not made", ("R5",), "305", line(ROLLOUT, FORWARD, "self._ensure_bagel_prompt_text(req)")),
    mutant(
        "text decoded and dropped",
        ("R5",),
        "305",
        line(
            ROLLOUT,
            ENSURE,
            'prompt["prompt"] = self._decode_prompt(prompt["prompt_token_ids"])',
            'text = self._decode_prompt(prompt["prompt_token_ids"])',
        ),
    ),
    mutant(
        "text made after the pipeline ran",
        ("R5",),
        "305",
        line(ROLLOUT, FORWARD, "self._ensure_bagel_prompt_text(req)"),
        line(
            ROLLOUT,
            FORWARD,
            "output = super().forward(req)",
            "output = super().forward(req)\nself._ensure_bagel_prompt_text(req)",
        ),
    ),
    mutant(
        "text under a key that the pipeline does not read",
        ("R5",),
        "305",
        line(
            ROLLOUT,
            ENSURE,
            'prompt["prompt"] = self._decode_prompt(prompt["prompt_token_ids"])',
            'prompt["text"] = self._decode_prompt(prompt["prompt_token_ids"])',
        ),
    ),
    mutant(
        "ids not compared after decoding",
        (31,),
        "312",
        line(
            ROLLOUT,
            DECODE,
            """
body = self.tokenizer.encode(decoded.strip(), add_special_tokens=False)
if body != ids[1:-1]:
    raise ValueError(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")
""",
        ),
    ),
    mutant(
        "different ids only printed",
        (31,),
        "312",
        line(
            ROLLOUT,
            DECODE,
            'raise ValueError(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")',
            'print(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")',
        ),
    ),
    mutant(
        "decoded in one line, special tokens skipped",
        (31,),
        "312",
        define(
            ROLLOUT,
            DECODE,
            """
def _decode_prompt(self, token_ids):
    return self.tokenizer.decode(token_ids, skip_special_tokens=True).strip()
""",
        ),
    ),
    mutant(
        "batch_decode inline",
        (31,),
        "312",
        define(ROLLOUT, DECODE, ""),
        line(
            ROLLOUT,
            ENSURE,
            'prompt["prompt"] = self._decode_prompt(prompt["prompt_token_ids"])',
            'prompt["prompt"] = self.tokenizer.batch_decode([prompt["prompt_token_ids"]], skip_special_tokens=True)[0]',
        ),
        line(
            ROLLOUT,
            ENSURE,
            'negative = self._decode_prompt(prompt["negative_prompt_ids"])',
            'negative = self.tokenizer.batch_decode([prompt["negative_prompt_ids"]], skip_special_tokens=True)[0]',
        ),
    ),
    # Window and steps
    mutant("no window", ("R6",), "306", line(ROLLOUT, FORWARD, WINDOW, "window = None")),
    mutant("window of fixed steps", ("R6",), "306", line(ROLLOUT, FORWARD, WINDOW, "window = (0, 2)")),
    mutant(
        "window's range not read",
        ("R6",),
        "306",
        line(ROLLOUT, FORWARD, WINDOW, 'window = pick_sde_window(extra_args.get("sde_window_size"), None)'),
    ),
    mutant("one step more asked for", ("R6", 5), "309", line(ROLLOUT, FORWARD, STEPS, f"{STEPS} + 1")),
    mutant(
        "request changed to one step more",
        ("R6", 5),
        "309",
        line(ROLLOUT, FORWARD, STEPS, f"{STEPS}\nparams.num_inference_steps = requested_steps + 1"),
    ),
    mutant(
        "request's count raised in place",
        (5,),
        "309",
        line(ROLLOUT, FORWARD, STEPS, f"{STEPS}\nparams.num_inference_steps += 1"),
    ),
    mutant(
        "compensation by a name",
        (5,),
        "309",
        add(ROLLOUT, "", "STEP_COMPENSATION = 1", first=True),
        line(
            ROLLOUT,
            FORWARD,
            "output = super().forward(req)",
            "params.num_inference_steps = requested_steps + STEP_COMPENSATION\noutput = super().forward(req)",
        ),
    ),
    mutant(
        "latents not returned", ("R6",), "314", drop_argument(ROLLOUT, FORWARD, "rollout_output", "trajectory_latents")
    ),
    mutant(
        "log-probs not returned",
        ("R6",),
        "314",
        argument(ROLLOUT, FORWARD, "rollout_output", "trajectory_log_probs", "None"),
    ),
    mutant(
        "upstream's own result returned",
        ("R6",),
        "314",
        define(
            ROLLOUT,
            FORWARD,
            """
def forward(self, req: DiffusionRequestBatch) -> DiffusionOutput:
    self._ensure_bagel_prompt_text(req)
    params = req.sampling_params
    extra_args = params.extra_args
    extra_args.update(resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS}))
    noise_level = float(extra_args.get("noise_level", 0.0))
    self.scheduler.begin(
        num_inference_steps=int(params.num_inference_steps),
        window=pick_sde_window(extra_args.get("sde_window_size"), extra_args.get("sde_window_range")),
        noise_level=noise_level,
        sde_type=str(extra_args.get("sde_type", "sde")),
        record_log_probs=noise_level > 0.0,
        generator=extra_args.get("generator"),
    )
    output = super().forward(req)
    self.scheduler.finish()
    return output
""",
        ),
    ),
    mutant(
        "noise outside of the window",
        ("R6",),
        "317",
        swap(
            ROLLOUT,
            STEP,
            'self._options if inside else {**self._options, "noise_level": 0.0, "return_logprobs": False}',
            "self._options",
        ),
    ),
    mutant(
        "log-probs outside of the window",
        ("R6",),
        "317",
        line(
            ROLLOUT,
            STEP,
            """
if inside:
    if not self._latents:
        self._latents.append(sample)
    self._latents.append(prev_sample)
    if log_prob is not None:
        self._log_probs.append(log_prob)
""",
            """
if log_prob is not None:
    self._log_probs.append(log_prob)
if inside:
    if not self._latents:
        self._latents.append(sample)
    self._latents.append(prev_sample)
""",
        ),
        swap(
            ROLLOUT,
            STEP,
            'self._options if inside else {**self._options, "noise_level": 0.0, "return_logprobs": False}',
            "self._options",
        ),
    ),
    mutant(
        "windowed log-probs sliced by the window",
        (2,),
        "307",
        line(
            ROLLOUT,
            FINISH,
            LOG_PROBS,
            "log_probs = torch.stack(self._log_probs, dim=1)[:, begin:end].cpu() if self._log_probs else None",
        ),
    ),
    mutant(
        "windowed log-probs sliced in forward",
        (2,),
        "307",
        line(
            ROLLOUT,
            FORWARD,
            FINISHED,
            f"{FINISHED}\nif window is not None and log_probs is not None:\n    log_probs = log_probs[:, window[0] : window[1]]",
        ),
    ),
    mutant(
        "list of windowed log-probs sliced",
        (2,),
        "307",
        line(
            ROLLOUT,
            FINISH,
            LOG_PROBS,
            "recorded = self._log_probs[begin:end]\nlog_probs = torch.stack(recorded, dim=1).cpu() if recorded else None",
        ),
    ),
    mutant(
        "windowed log-probs narrowed",
        (2,),
        "307",
        line(
            ROLLOUT,
            FINISH,
            LOG_PROBS,
            f"{LOG_PROBS}\nif log_probs is not None:\n    log_probs = log_probs.narrow(1, begin, end - begin)",
        ),
    ),
    # Randomness
    mutant(
        "window from the global generator",
        (15,),
        "308",
        line(COMMON, "pick_sde_window", DRAW, "begin = random.randint(low, latest)"),
    ),
    mutant(
        "window from the request's seed",
        (15,),
        "308",
        swap(COMMON, "pick_sde_window", 'random.Random(int(os.environ["LOCAL_RANK"]))', "random.Random(seed)"),
        signature(COMMON, "pick_sde_window", "def pick_sde_window(size, window_range, seed=None)"),
        line(ROLLOUT, FORWARD, WINDOW, WINDOW[:-1] + ", params.seed)"),
    ),
    mutant(
        "window from torch's generator",
        (15,),
        "308",
        line(COMMON, "pick_sde_window", DRAW, "begin = int(torch.randint(low, latest + 1, (1,)))"),
    ),
    mutant(
        "window drawn in forward",
        (15,),
        "308",
        add(ROLLOUT, "", "import random", first=True),
        line(
            ROLLOUT,
            FORWARD,
            WINDOW,
            f"{WINDOW}\nif window is not None:\n    begin = random.randrange(0, 5)\n    window = (begin, begin + 2)",
        ),
    ),
    mutant(
        "torch reseeded per request",
        (17,),
        "310",
        line(ROLLOUT, FORWARD, STEPS, f"{STEPS}\ntorch.manual_seed(params.seed or 0)"),
    ),
    mutant(
        "python's generator reseeded",
        (17,),
        "310",
        line(
            COMMON,
            "pick_sde_window",
            DRAW,
            'random.seed(int(os.environ["LOCAL_RANK"]))\nbegin = random.randint(low, latest) if latest > low else low',
        ),
    ),
    mutant(
        "numpy reseeded",
        (17,),
        "310",
        add(ROLLOUT, "", "import numpy as np", first=True),
        line(ROLLOUT, BEGIN, "self._generator = generator", "self._generator = generator\nnp.random.seed(0)"),
    ),
    mutant(
        "transformers reseeds everything",
        (17,),
        "310",
        add(ROLLOUT, "", "from transformers import set_seed", first=True),
        line(ROLLOUT, FORWARD, STEPS, f"{STEPS}\nset_seed(42)"),
    ),
    mutant(
        "noise with a constant seed",
        (16,),
        "311",
        argument(ROLLOUT, FORWARD, "self.scheduler.begin", "generator", "torch.Generator().manual_seed(0)"),
    ),
    mutant(
        "noise seeded like the first latents",
        (16,),
        "311",
        argument(ROLLOUT, FORWARD, "self.scheduler.begin", "generator", "torch.Generator().manual_seed(params.seed)"),
    ),
    mutant(
        "a generator with a constant seed in the wrapper",
        (16,),
        "311",
        argument(ROLLOUT, STEP, INNER, "generator", "torch.Generator(device=sample.device).manual_seed(42)"),
    ),
    # Precision
    mutant(
        "trajectory in bf16",
        (13,),
        "315",
        line(
            ROLLOUT, STEP, "self._latents.append(prev_sample)", "self._latents.append(prev_sample.to(torch.bfloat16))"
        ),
    ),
    mutant(
        "trajectory in half",
        (13,),
        "315",
        swap(
            ROLLOUT, FINISH, "torch.stack(self._latents, dim=1).cpu()", "torch.stack(self._latents, dim=1).half().cpu()"
        ),
    ),
    mutant(
        "wrapper feeds the pipeline's precision",
        (13,),
        "315 213",
        swap(ROLLOUT, STEP, "sample.float()[None]", "sample[None]"),
        argument(ROLLOUT, STEP, INNER, "model_output", "model_output[None]"),
    ),
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
