"""Small slips around the SDE window."""

from mutants.edit import argument, drop_argument, swap
from mutants.mutant import COMMON, ROLLOUT, Mutant, mutant

PIPELINE = "BagelPipelineWithLogProb"
WRAPPER = "_BagelSchedulerAdapter"
FORWARD = f"{PIPELINE}.forward"
RUN = "output = super().forward(req)"
WINDOW = (
    'pick_sde_window(extra_args.get("sde_window_size"), extra_args.get("sde_window_range"),'
    ' extra_args.get("global_steps"))'
)
INSIDE = "inside = begin <= index < end"
OPTIONS = 'options = self._options if inside else {**self._options, "noise_level": 0.0, "return_logprobs": False}'
RECORDED = "latents, timesteps, log_probs = self.scheduler.finish()"
DRAW = "low + int(random.Random(int(training_step)).random() * (latest - low + 1))"


def slip(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant with one expression or one run of statements changed."""
    return mutant(name, items, rules, swap(ROLLOUT, within, old, new))


def shared(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant of what both sides share."""
    return mutant(name, items, rules, swap(COMMON, within, old, new))


MUTANTS = [
    # Window
    slip("no window, once more", ("R6",), "306", FORWARD, f"window = {WINDOW}", "window = None"),
    mutant(
        "window never handed on",
        ("R6",),
        "306 134",
        argument(ROLLOUT, FORWARD, "self.scheduler.begin", "window", "None"),
    ),
    slip(
        "size and range exchanged",
        ("R6",),
        "129",
        FORWARD,
        WINDOW,
        'pick_sde_window(extra_args.get("sde_window_range"), extra_args.get("sde_window_size"),'
        ' extra_args.get("global_steps"))',
    ),
    slip("window under a misspelt key", ("R6",), "306", FORWARD, '"sde_window_range"', '"sde_windows_range"'),
    slip(
        "window only without noise",
        ("R6",),
        "306",
        FORWARD,
        f"if noise_level > 0.0:\n    window = {WINDOW}",
        f"if noise_level == 0.0:\n    window = {WINDOW}",
    ),
    slip("window one step longer", ("R6",), "317 321", f"{WRAPPER}.step", INSIDE, "inside = begin <= index <= end"),
    slip("window one step later", ("R6",), "317 321", f"{WRAPPER}.step", INSIDE, "inside = begin < index <= end"),
    slip("window's begin left out", ("R6",), "317 321", f"{WRAPPER}.step", INSIDE, "inside = begin < index < end"),
    slip("window open at its begin", ("R6",), "317 321", f"{WRAPPER}.step", INSIDE, "inside = index < end"),
    slip("outside of the window", ("R6",), "317 321", f"{WRAPPER}.step", INSIDE, "inside = not begin <= index < end"),
    slip("noise at every step", ("R6",), "317", f"{WRAPPER}.step", OPTIONS, "options = self._options"),
    slip(
        "noise outside only",
        ("R6",),
        "317",
        f"{WRAPPER}.step",
        OPTIONS,
        'options = {**self._options, "noise_level": 0.0, "return_logprobs": False} if inside else self._options',
    ),
    slip(
        "noise outside is not switched off",
        ("R6",),
        "317",
        f"{WRAPPER}.step",
        OPTIONS,
        'options = self._options if inside else {**self._options, "return_logprobs": False}',
    ),
    slip(
        "first sample not recorded",
        ("R6",),
        "314 321",
        f"{WRAPPER}.step",
        "if not self._latents:\n    self._latents.append(sample)",
    ),
    slip("next sample not recorded", ("R6",), "314 321", f"{WRAPPER}.step", "self._latents.append(prev_sample)"),
    slip(
        "sample recorded for the next",
        ("R6",),
        "314 321",
        f"{WRAPPER}.step",
        "self._latents.append(prev_sample)",
        "self._latents.append(sample)",
    ),
    slip(
        "log-probs not recorded",
        ("R6",),
        "314 321",
        f"{WRAPPER}.step",
        "if log_prob is not None:\n    self._log_probs.append(log_prob)",
    ),
    slip(
        "all timesteps returned", ("R6",), "321 307", f"{WRAPPER}.finish", "expected[begin:end][None]", "expected[None]"
    ),
    slip(
        "one timestep more returned",
        ("R6",),
        "307 321",
        f"{WRAPPER}.finish",
        "expected[begin:end]",
        "expected[begin:end + 1]",
    ),
    slip(
        "timesteps from the window's end",
        ("R6",),
        "307 321",
        f"{WRAPPER}.finish",
        "expected[begin:end]",
        "expected[end:]",
    ),
    slip(
        "log-probs sliced once more",
        (2,),
        "307",
        FORWARD,
        RECORDED,
        f"{RECORDED}\nif window is not None and log_probs is not None:\n    log_probs = log_probs[:, window[0] : window[1]]",
    ),
    slip(
        "log-probs sliced in the wrapper",
        (2,),
        "307",
        f"{WRAPPER}.finish",
        "log_probs = torch.stack(self._log_probs, dim=1).cpu() if self._log_probs else None",
        "log_probs = torch.stack(self._log_probs, dim=1)[:, begin:end].cpu() if self._log_probs else None",
    ),
    slip(
        "latents sliced once more",
        (2,),
        "307",
        f"{WRAPPER}.finish",
        "torch.stack(self._latents, dim=1).cpu()",
        "torch.stack(self._latents, dim=1)[:, begin:end + 1].cpu()",
    ),
    slip(
        "trajectory stacked in front",
        ("R6", 6),
        "321 314",
        f"{WRAPPER}.finish",
        "torch.stack(self._log_probs, dim=1)",
        "torch.stack(self._log_probs)",
    ),
    slip(
        "recorded values exchanged",
        ("R6",),
        "129 314",
        FORWARD,
        RECORDED,
        "latents, log_probs, timesteps = self.scheduler.finish()",
    ),
    mutant(
        "log-probs returned as timesteps",
        ("R6",),
        "134 314",
        argument(ROLLOUT, FORWARD, "rollout_output", "trajectory_timesteps", "log_probs"),
    ),
    mutant(
        "log-probs not returned, once more",
        ("R6",),
        "314",
        drop_argument(ROLLOUT, FORWARD, "rollout_output", "trajectory_log_probs"),
    ),
    slip(
        "trajectory not returned at all",
        ("R6",),
        "314",
        FORWARD,
        "return rollout_output(media=media, trajectory_latents=latents, trajectory_timesteps=timesteps, trajectory_log_probs=log_probs, metadata=metadata, to_cpu=False)",
        "return output",
    ),
    slip(
        "lists not emptied between requests",
        ("R6", 6),
        "321 314",
        f"{WRAPPER}.begin",
        "self._sigmas, self._latents, self._log_probs = [], [], []",
    ),
    slip("one step more for the pipeline", (5,), "309", FORWARD, RUN, f"params.num_inference_steps += 1\n{RUN}"),
    slip(
        "one step more for the schedule",
        (5,),
        "309",
        FORWARD,
        "requested_steps = int(params.num_inference_steps)",
        "requested_steps = int(params.num_inference_steps) + 1",
    ),
    mutant(
        "one step fewer where the schedule begins",
        (5,),
        "309 204",
        argument(ROLLOUT, FORWARD, "self.scheduler.begin", "num_inference_steps", "requested_steps - 1"),
    ),
    mutant(
        "window of the request's seed",
        (15,),
        "308",
        swap(
            ROLLOUT,
            FORWARD,
            f"window = {WINDOW}",
            f"window = {WINDOW}\nbegin = random.Random(params.seed).randint(0, 5)\nwindow = (begin, begin + 2)",
        ),
        swap(ROLLOUT, "", "import os", "import os\nimport random"),
    ),
    shared("window of an unseeded generator", (15,), "308", "pick_sde_window", DRAW, "random.randint(low, latest)"),
    mutant(
        "window of the process",
        (15,),
        "308",
        swap(COMMON, "pick_sde_window", DRAW, "random.Random(os.getpid()).randint(low, latest)"),
        swap(COMMON, "", "import random", "import os\nimport random"),
    ),
    mutant(
        "window of numpy's generator",
        (15,),
        "308",
        swap(COMMON, "pick_sde_window", DRAW, "int(np.random.default_rng().integers(low, latest + 1))"),
        swap(COMMON, "", "import torch", "import numpy as np\nimport torch"),
    ),
    shared(
        "window one step too long",
        ("R6",),
        "321",
        "pick_sde_window",
        "return begin, begin + int(size)",
        "return begin, begin + int(size) + 1",
    ),
    shared(
        "window may leave its range",
        ("R6",),
        "321",
        "pick_sde_window",
        "int(window_range[1]) - int(size)",
        "int(window_range[1])",
    ),
    shared(
        "window's size for its end",
        ("R6",),
        "321",
        "pick_sde_window",
        "return begin, begin + int(size)",
        "return begin, int(size)",
    ),
]
