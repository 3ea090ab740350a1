"""The way back is another one than the way in."""

from mutants.edit import text
from mutants.mutant import MODEL, ROLLOUT, mutant

_LOOP = (
    "    for source, target in sorted(KEY_MAP, key=lambda rule: -len(rule[1])):\n"
    "        if name.startswith(target):\n            return source + name[len(target) :]\n"
)


def _inverse(new: str, name: str, *items):
    return mutant(name, ("M6", 21, *items), "402 403 405 407 408 409", text(MODEL, _LOOP, new))


MUTANTS = [
    _inverse(
        '    if name.startswith(("layers.", "norm.")):\n        return "language_model.model." + name\n'
        "    for source, target in KEY_MAP:\n"
        "        if target and name.startswith(target):\n            return source + name[len(target) :]\n",
        "inverse by a list of prefixes that lacks some",
    ),
    _inverse(
        '    head = name.partition(".")[0]\n'
        '    if head in ("latent_pos_embed", "time_embedder", "llm2vae"):\n        return name\n'
        '    if head:\n        return f"language_model.model.{name}"\n',
        "inverse by the first word, one forgotten",
    ),
    _inverse(
        "    back = {target: source for source, target in KEY_MAP}\n"
        "    for target in sorted(back):\n"
        "        if name.startswith(target):\n            return back[target] + name.removeprefix(target)\n",
        "inverse by a dictionary, the empty prefix first",
    ),
    _inverse(
        '    if "." in name:\n        return "language_model.model." + name\n',
        "inverse puts one prefix on every name",
    ),
    _inverse(
        "    for source, target in KEY_MAP:\n"
        "        if target and name.startswith(target):\n            return name\n"
        '    if name:\n        return "language_model." + name\n',
        "inverse with half of the prefix",
    ),
    mutant(
        "latents handed back with the batch dimension",
        ("R4",),
        "304",
        text(ROLLOUT, "return _StepOutput(prev_sample[0], None", "return _StepOutput(prev_sample, None"),
    ),
    mutant(
        "latents handed back with the batch dimension, by name",
        ("R4",),
        "304",
        text(
            ROLLOUT,
            "        return _StepOutput(prev_sample[0], None",
            "        result = prev_sample.float()\n        return _StepOutput(result, None",
        ),
    ),
    mutant(
        "log-prob handed back with the batch dimension and latents too",
        ("R4",),
        "304",
        text(ROLLOUT, "prev_sample[0], None if log_prob is None else log_prob[0])", "prev_sample, log_prob)"),
    ),
    mutant(
        "batch dimension taken off at the wrong end",
        ("R4",),
        "304",
        text(ROLLOUT, "_StepOutput(prev_sample[0], None", "_StepOutput(prev_sample[..., 0], None"),
    ),
    mutant(
        "batch dimension put on twice and taken off once",
        ("R4",),
        "304",
        text(ROLLOUT, "sample = sample.float()[None]", "sample = sample.float()[None][None]"),
        text(ROLLOUT, "model_output=model_output.float()[None]", "model_output=model_output.float()[None][None]"),
    ),
    mutant(
        "latents' queries and keys change norms",
        ("M8",),
        "127",
        text(MODEL, "q_latents = self.q_norm_moe_gen(q_latents)", "q_latents = self.k_norm_moe_gen(q_latents)"),
        text(MODEL, "k_latents = self.k_norm_moe_gen(k_latents)", "k_latents = self.q_norm_moe_gen(k_latents)"),
    ),
    mutant(
        "context's queries and keys change norms",
        ("M8",),
        "127",
        text(MODEL, "self.q_norm(q_context.float())", "self.k_norm(q_context.float())"),
        text(MODEL, "self.k_norm(k_context.float())", "self.q_norm(k_context.float())"),
    ),
    mutant(
        "both streams' queries and keys change norms",
        ("M8",),
        "127",
        text(MODEL, "self.q_norm(q_context.float())", "self.k_norm(q_context.float())"),
        text(MODEL, "self.k_norm(k_context.float())", "self.q_norm(k_context.float())"),
        text(MODEL, "q_latents = self.q_norm_moe_gen(q_latents)", "q_latents = self.k_norm_moe_gen(q_latents)"),
        text(MODEL, "k_latents = self.k_norm_moe_gen(k_latents)", "k_latents = self.q_norm_moe_gen(k_latents)"),
    ),
    mutant(
        "values of the latents through their keys' norm",
        ("M8",),
        "127 121",
        text(MODEL, "k_latents = self.k_norm_moe_gen(k_latents)", "v_latents = self.k_norm_moe_gen(v_latents)"),
    ),
    mutant(
        "queries projected by the keys' weights",
        ("M8", "M7"),
        "127 121",
        text(MODEL, "k_latents = self.k_proj_moe_gen(latents)", "k_latents = self.v_proj_moe_gen(latents)"),
        text(MODEL, "v_latents = self.v_proj_moe_gen(latents)", "v_latents = self.k_proj_moe_gen(latents)"),
    ),
    mutant(
        "norms before attention and before the feed-forward change places",
        ("M8", "M7"),
        "127",
        text(
            MODEL,
            "self.input_layernorm_moe_gen(latents), layout",
            "self.post_attention_layernorm_moe_gen(latents), layout",
        ),
        text(
            MODEL,
            "self.mlp_moe_gen(self.post_attention_layernorm_moe_gen(latents))",
            "self.mlp_moe_gen(self.input_layernorm_moe_gen(latents))",
        ),
    ),
    mutant(
        "names of the actor not stripped of the wrapper",
        (18, 24),
        "409 318 408",
        text(ROLLOUT, "name = to_checkpoint_key(_training_name(name))", "name = to_checkpoint_key(name)"),
    ),
]
