"""SDE window, step counts, random numbers and precision of the rollout."""

from mutants.edit import (
    add,
    argument,
    define,
    drop_argument,
    line,
    signature,
    swap,
)
from mutants.mutant import COMMON, ROLLOUT, mutant

PIPELINE = "BagelPipelineWithLogProb"
FORWARD = f"{PIPELINE}.forward"
WRAPPER = "_BagelSchedulerAdapter"
BEGIN, STEP, FINISH = f"{WRAPPER}.begin", f"{WRAPPER}.step", f"{WRAPPER}.finish"
INNER = "self.inner.step"
WINDOW = (
    'window = pick_sde_window(extra_args.get("sde_window_size"), extra_args.get("sde_window_range"),'
    ' extra_args.get("global_steps"))'
)
STEPS = "requested_steps = int(params.num_inference_steps)"
LOG_PROBS = "log_probs = torch.stack(self._log_probs, dim=1).cpu() if self._log_probs else None"
FINISHED = "latents, timesteps, log_probs = self.scheduler.finish()"
DRAW = "begin = low + int(random.Random(int(training_step)).random() * (latest - low + 1))"

MUTANTS = [
    # Window and steps
    mutant("no window", ("R6",), "306", line(ROLLOUT, FORWARD, WINDOW, "window = None")),
    mutant("window of fixed steps", ("R6",), "306", line(ROLLOUT, FORWARD, WINDOW, "window = (0, 2)")),
    mutant(
        "window's range not read",
        ("R6",),
        "306",
        line(
            ROLLOUT,
            FORWARD,
            WINDOW,
            'window = pick_sde_window(extra_args.get("sde_window_size"), None, extra_args.get("global_steps"))',
        ),
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
        window=pick_sde_window(
            extra_args.get("sde_window_size"), extra_args.get("sde_window_range"), extra_args.get("global_steps")
        ),
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
        swap(COMMON, "pick_sde_window", "random.Random(int(training_step))", "random.Random(seed)"),
        signature(COMMON, "pick_sde_window", "def pick_sde_window(size, window_range, training_step, seed=None)"),
        line(ROLLOUT, FORWARD, WINDOW, WINDOW[:-1] + ", params.seed)"),
    ),
    mutant(
        "window from the rank",
        (15,),
        "308",
        add(COMMON, "", "import os", first=True),
        swap(COMMON, "pick_sde_window", "int(training_step)", 'int(os.environ["LOCAL_RANK"])'),
    ),
    mutant(
        "window from the rank of torch's processes",
        (15,),
        "308",
        line(
            ROLLOUT, FORWARD, WINDOW, WINDOW.replace('extra_args.get("global_steps")', "torch.distributed.get_rank()")
        ),
    ),
    mutant("one window", (15,), "308", swap(COMMON, "pick_sde_window", "int(training_step)", "42")),
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
            "random.seed(int(training_step))\nbegin = random.randint(low, latest)",
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
]
