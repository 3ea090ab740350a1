"""Guidance and the step, per sample and per branch."""

from __future__ import annotations

from known_bugs.bug import COMMON, ROLLOUT, TRAINING, Bug

BUGS = (
    Bug(
        6,
        "log-prob of another shape in training",
        (
            (
                TRAINING,
                "        return log_prob, prev_sample_mean",
                "        return log_prob[:, None], prev_sample_mean",
            ),
        ),
        ("sde-step",),
        ("rollout-log-probs", "window-alignment", "padding-invariance", "float32-kept"),
    ),
    Bug(
        13,
        "scheduler fed bf16",
        ((ROLLOUT, "model_output.float()[None]", "model_output[None]"),),
        ("float32-kept",),
    ),
    Bug(
        29,
        "scale written twice",
        ((TRAINING, 'guidance["cfg_text_scale"] * (conditional', "3.0 * (conditional"),),
        ("cfg-formula", "cfg-settings"),
    ),
    Bug(
        41,
        "interval of another type",
        (
            (
                COMMON,
                'values["cfg_interval"] = (float(interval[0]), float(interval[1]))',
                'values["cfg_interval"] = interval',
            ),
        ),
        ("cfg-settings",),
    ),
    Bug(
        None,
        "prompt in the unconditional branch",
        (
            (
                TRAINING,
                '"text_token_ids": None, "text_attention_mask": None}',
                '"text_token_ids": ids, "text_attention_mask": mask}',
            ),
        ),
        ("cfg-branches",),
    ),
    Bug(
        29,
        "scale of the request ignored",
        (
            (
                ROLLOUT,
                "resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS})",
                "resolve_guidance({})",
            ),
        ),
        ("cfg-settings",),
    ),
    Bug(
        None,
        "renorm that scales up",
        ((TRAINING, ".clamp(min=minimum, max=1.0)", ".clamp(min=minimum)"),),
        ("cfg-formula",),
    ),
    Bug(
        None,
        "interval closed at its low end",
        ((TRAINING, "(sigma > low)", "(sigma >= low)"),),
        ("cfg-formula",),
    ),
    Bug(
        None,
        "first sample decides about guidance",
        ((TRAINING, "torch.where(active.view(-1, 1, 1), guided", "torch.where(active[0], guided"),),
        ("step-per-sample",),
    ),
    Bug(
        None,
        "first sample's noise level for all",
        (
            (
                TRAINING,
                "            timestep=timesteps[:, step],\n            prev_sample",
                "            timestep=timesteps[:1, step].expand(len(timesteps)),\n            prev_sample",
            ),
        ),
        ("step-per-sample",),
    ),
    Bug(
        None,
        "unconditional branch without gradient",
        ((TRAINING, "guide(velocity, unconditional, ", "guide(velocity, unconditional.detach(), "),),
        ("cfg-branches",),
    ),
)
