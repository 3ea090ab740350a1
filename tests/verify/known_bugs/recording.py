"""What the rollout adapter samples and records."""

from __future__ import annotations

from known_bugs.bug import COMMON, ROLLOUT, TRAINING, Bug

OUTSIDE = '{**self._options, "noise_level": 0.0, "return_logprobs": False}'

BUGS = (
    Bug(
        2,
        "noise outside of the window",
        ((ROLLOUT, f"self._options if inside else {OUTSIDE}", "self._options"),),
        ("window-noise",),
    ),
    Bug(
        15,
        "noise outside of the window alone",
        ((ROLLOUT, f"self._options if inside else {OUTSIDE}", f"{OUTSIDE} if inside else self._options"),),
        ("window-noise",),
        ("window-alignment", "rollout-log-probs"),
    ),
    Bug(
        2,
        "log-probs cut by the window again",
        (
            (
                ROLLOUT,
                "torch.stack(self._log_probs, dim=1)",
                "torch.stack(self._log_probs[begin:end] or [torch.zeros(1)], dim=1)",
            ),
        ),
        ("window-alignment",),
    ),
    Bug(
        2,
        "a window one step shorter than asked",
        (
            (COMMON, "        return low, low + int(size)\n", "        return low, low + int(size) - 1\n"),
            (COMMON, "        return 0, int(size)\n", "        return 0, int(size) - 1\n"),
        ),
        ("window-alignment",),
    ),
    Bug(
        5,
        "one step more in the rollout",
        (
            (
                ROLLOUT,
                "            num_inference_steps=requested_steps,\n",
                "            num_inference_steps=requested_steps + 1,\n",
            ),
            (
                ROLLOUT,
                "        output = super().forward(req)\n",
                "        params.num_inference_steps = requested_steps + 1\n        output = super().forward(req)\n",
            ),
        ),
        ("schedule-diffusers-0.38.0",),
    ),
    Bug(
        6,
        "log-probs of another shape in the rollout",
        ((ROLLOUT, "torch.stack(self._log_probs, dim=1)", "torch.stack(self._log_probs, dim=0)"),),
        ("rollout-log-probs", "window-alignment"),
    ),
    Bug(
        7,
        "normaliser on one side",
        ((TRAINING, "include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER", "include_logprob_normalizer=True"),),
        ("rollout-log-probs",),
    ),
    Bug(
        13,
        "latents recorded in bf16",
        ((ROLLOUT, "self._latents.append(prev_sample)", "self._latents.append(prev_sample.bfloat16().float())"),),
        ("window-alignment", "rollout-log-probs"),
    ),
    Bug(
        7,
        "noise level of the first request for all",
        (
            (
                ROLLOUT,
                '        noise_level = float(extra_args.get("noise_level", 0.0))\n',
                "        self._first = getattr(self, '_first', float(extra_args.get('noise_level', 0.0)))\n"
                "        noise_level = self._first\n",
            ),
        ),
        ("requests-apart",),
        ("rollout-log-probs",),
    ),
    Bug(
        15,
        "window drawn for each request",
        ((COMMON, "random.Random(int(training_step)).random()", "random.random()"),),
        ("window-per-step",),
    ),
    Bug(
        15,
        "window of the request's seed",
        ((ROLLOUT, 'extra_args.get("global_steps")', "params.seed"),),
        ("window-per-step",),
    ),
    Bug(
        15,
        "window of the request's id",
        ((ROLLOUT, 'extra_args.get("global_steps")', "int(req.requests[0].request_id, 16)"),),
        ("window-per-step",),
    ),
    Bug(
        15,
        "window of the rank and the step",
        (
            (COMMON, "import random\n", "import os\nimport random\n"),
            (COMMON, "Random(int(training_step))", 'Random(int(training_step) + int(os.environ["LOCAL_RANK"]))'),
        ),
        ("window-per-step",),
    ),
    Bug(
        15,
        "window of the process and the step",
        (
            (COMMON, "import random\n", "import os\nimport random\n"),
            (COMMON, "Random(int(training_step))", "Random(int(training_step) + os.getpid())"),
        ),
        ("window-per-step",),
    ),
    Bug(
        15,
        "window of a counter",
        (
            (COMMON, "\n\ndef pick_sde_window", "\nDRAWS = iter(range(10000))\n\n\ndef pick_sde_window"),
            (COMMON, "Random(int(training_step))", "Random(next(DRAWS) // 4)"),
        ),
        ("window-per-step",),
    ),
    Bug(
        15,
        "one window for the whole training",
        ((COMMON, "Random(int(training_step))", "Random(0)"),),
        ("window-per-step",),
    ),
    Bug(
        None,
        "trajectory of a validation request",
        (
            (ROLLOUT, "(window or (0, count)) if noise_level > 0.0 else (0, 0)", "window or (0, count)"),
            (ROLLOUT, "if noise_level > 0.0 and not 0 <=", "if not 0 <="),
        ),
        ("validation-output",),
    ),
    Bug(
        None,
        "noise in validation",
        ((ROLLOUT, 'float(extra_args.get("noise_level", 0.0))', 'float(extra_args["noise_level"] or 0.1)'),),
        ("validation-output",),
    ),
    Bug(
        16,
        "one noise for all",
        (
            (
                ROLLOUT,
                "            generator=self._generator,\n",
                "            generator=torch.Generator().manual_seed(0),\n",
            ),
        ),
        ("rollout-noise",),
    ),
    Bug(
        17,
        "global generator reseeded",
        (
            (
                ROLLOUT,
                "        output = super().forward(req)\n",
                "        torch.manual_seed(0)\n        output = super().forward(req)\n",
            ),
        ),
        ("rollout-noise",),
    ),
    Bug(
        7,
        "noise level of the request ignored",
        ((ROLLOUT, 'self._options = {"noise_level": noise_level,', 'self._options = {"noise_level": 0.7,'),),
        ("rollout-log-probs",),
    ),
)
