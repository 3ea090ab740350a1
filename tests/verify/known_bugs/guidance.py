"""Guidance and the step, per sample and per branch."""

from __future__ import annotations

from known_bugs.bug import COMMON, OTHERS, ROLLOUT, TRAINING, Bug

BEFORE_RENORM = '    renorm, minimum = guidance["cfg_renorm_type"], guidance["cfg_renorm_min"]\n'

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
        29,
        "guidance left out",
        ((TRAINING, 'if guidance["cfg_text_scale"] > 1.0:', 'if guidance["cfg_text_scale"] > 9.0:'),),
        ("cfg-formula", "cfg-settings"),
    ),
    Bug(
        29,
        "guidance in a dictionary that upstream never sees",
        (
            (
                ROLLOUT,
                "        extra_args.update(resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS}))\n",
                "        guidance = resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS})\n"
                "        extra_args = {**extra_args, **guidance}\n",
            ),
        ),
        ("cfg-settings",),
    ),
    Bug(
        42,
        "branch left out by the samples' noise levels",
        (
            (
                TRAINING,
                '        if guidance["cfg_text_scale"] > 1.0:\n',
                '        low, high = guidance["cfg_interval"]\n'
                "        inside = (timesteps[:, step] > low) & (timesteps[:, step] <= high)\n"
                '        if guidance["cfg_text_scale"] > 1.0 and inside.any():\n',
            ),
        ),
        ("same-calls",),
    ),
    Bug(
        42,
        "branch left out at random",
        (
            (
                TRAINING,
                '        if guidance["cfg_text_scale"] > 1.0:\n',
                '        if guidance["cfg_text_scale"] > 1.0 and torch.rand(()).item() > 0.5:\n',
            ),
        ),
        ("same-calls",),
        OTHERS,
    ),
    Bug(
        12,
        "guidance in train mode alone",
        (
            (
                TRAINING,
                '        if guidance["cfg_text_scale"] > 1.0:\n',
                '        if guidance["cfg_text_scale"] > 1.0 and module.training:\n',
            ),
        ),
        ("train-mode",),
    ),
    Bug(
        12,
        "guidance where gradients are on",
        (
            (
                TRAINING,
                '        if guidance["cfg_text_scale"] > 1.0:\n',
                '        if guidance["cfg_text_scale"] > 1.0 and torch.is_grad_enabled():\n',
            ),
        ),
        ("train-mode",),
    ),
    Bug(
        None,
        "velocity rounded at the first step",
        (
            (
                TRAINING,
                "            model_output=velocity,\n",
                "            model_output=velocity if step else velocity.bfloat16().float(),\n",
            ),
        ),
        ("sde-step",),
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
        ("padding-invariance",),
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
        ("step-per-sample", "batch-equals-singles"),
        ("padding-invariance",),
    ),
    Bug(
        None,
        "values above a threshold scaled by the largest of the batch",
        (
            (
                TRAINING,
                BEFORE_RENORM,
                BEFORE_RENORM + "    guided = guided / (guided.abs().amax() / 3.0).clamp(min=1.0)\n",
            ),
        ),
        ("cfg-formula", "batch-equals-singles", "step-per-sample"),
        ("padding-invariance", "cfg-settings"),
    ),
    Bug(
        None,
        "samples of an even batch see each other",
        (
            (
                TRAINING,
                BEFORE_RENORM,
                "    if len(guided) % 2 == 0:\n        guided = guided - 0.1 * guided.mean(dim=0)\n" + BEFORE_RENORM,
            ),
        ),
        ("batch-equals-singles",),
    ),
    Bug(
        None,
        "one renorm follows the batch",
        (
            (
                TRAINING,
                '    if renorm == "channel":\n',
                '    if renorm == "channel":\n        guided = guided * (1 + 1e-3 * guided.mean(dim=(0, 1)))\n',
            ),
        ),
        ("cfg-formula", "step-per-sample"),
    ),
    Bug(
        None,
        "samples of a batch stretched to the largest",
        ((TRAINING, BEFORE_RENORM, BEFORE_RENORM + "    guided = guided * guided.std(dim=0).clamp(max=1.0)\n"),),
        ("cfg-formula", "batch-equals-singles", "step-per-sample"),
        ("padding-invariance", "cfg-settings"),
    ),
    Bug(
        None,
        "model told the first sample's noise level for all",
        (
            (
                TRAINING,
                "timestep_features(timesteps[:, step])",
                "timestep_features(timesteps[:1, step].expand(len(timesteps)))",
            ),
        ),
        ("batch-equals-singles", "padding-invariance"),
    ),
    Bug(
        None,
        "unconditional branch without gradient",
        ((TRAINING, "guide(velocity, unconditional, ", "guide(velocity, unconditional.detach(), "),),
        ("cfg-branches",),
    ),
)
