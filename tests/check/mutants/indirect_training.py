"""Mistakes of the training adapter behind one indirection: a copy, an alias, a helper, a default, another spelling."""

from mutants.edit import add, argument, swap
from mutants.mutant import TRAINING, Mutant, mutant

ADAPTER = "BagelDiffusion"
INPUTS = f"{ADAPTER}.prepare_model_inputs"
STEP = f"{ADAPTER}.forward_and_sample_previous_step"
SAMPLE = "scheduler.sample_previous_step"
RESULT = "return log_prob, prev_sample_mean, std_dev_t, sqrt_dt"
MASK = "torch.arange(ids.shape[1], device=device) < torch.tensor(lengths, device=device)[:, None]"
PAIR = """
conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}
return conditional, {**shared, "text_token_ids": None, "text_attention_mask": None}
"""
SORTED = """
branches = {
    "positive": {**shared, "text_token_ids": ids, "text_attention_mask": mask},
    "negative": {**shared, "text_token_ids": None, "text_attention_mask": None},
}
return tuple(branches[name] for name in sorted(branches))
"""
LISTED = """
branches = {
    "negative": {**shared, "text_token_ids": None, "text_attention_mask": None},
    "positive": {**shared, "text_token_ids": ids, "text_attention_mask": mask},
}
return tuple(branches.values())
"""
ALIASED = """
conditional = unconditional = shared
conditional.update(text_token_ids=ids, text_attention_mask=mask)
unconditional.update(text_token_ids=None, text_attention_mask=None)
return conditional, unconditional
"""
HELPER = """
def _plain(*tensors):
    return tuple(tensor.detach().float() for tensor in tensors)
"""


def slip(name: str, items: tuple, rules: str, within: str, old: str, new: str) -> Mutant:
    """Return a mutant with one expression or one run of statements changed."""
    return mutant(name, items, rules, swap(TRAINING, within, old, new))


MUTANTS = [
    slip(
        "dtype in the place of the path",
        ("T2",),
        "202",
        f"{ADAPTER}.build_module",
        "BagelForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)",
        "BagelForTraining.from_pretrained(torch_dtype, model_config.local_path)",
    ),
    mutant(
        "timesteps of a copy",
        ("T3",),
        "203",
        swap(TRAINING, "", "import logging", "import copy\nimport logging"),
        swap(
            TRAINING,
            f"{ADAPTER}.set_timesteps",
            "setup_bagel_sigmas(scheduler, model_config.pipeline.num_inference_steps, device=device)",
            "setup_bagel_sigmas(copy.deepcopy(scheduler), model_config.pipeline.num_inference_steps, device=device)",
        ),
    ),
    slip("branches sorted by name", ("T4",), "221", INPUTS, PAIR, SORTED),
    slip("branches in the order of a dictionary", ("T4",), "221", INPUTS, PAIR, LISTED),
    slip("one dictionary for both branches", ("T4", "T5"), "221", INPUTS, PAIR, ALIASED),
    slip("squeezed latents", ("T4",), "206", INPUTS, "latents[:, step]", "latents[:, step].squeeze()"),
    slip(
        "mask of the chat prompts",
        ("T4", 9, 28),
        "226",
        f"{ADAPTER}._prompt_token_ids_to_batch",
        MASK,
        'micro_batch["attention_mask"][:, : ids.shape[1]].to(device, torch.bool)',
    ),
    slip(
        "thousandths before the features",
        ("M7",),
        "139",
        INPUTS,
        "timestep_features(timesteps[:, step])",
        "timestep_features(1000.0 * timesteps[:, step])",
    ),
    slip(
        "noise level in the parameters' dtype",
        ("M7", 13),
        "213",
        INPUTS,
        "timestep_features(timesteps[:, step])",
        "timestep_features(timesteps[:, step].to(next(module.parameters()).dtype))",
    ),
    slip(
        "guidance in training mode alone",
        ("T5",),
        "228",
        STEP,
        'guidance["cfg_text_scale"] > 1.0',
        'guidance["cfg_text_scale"] > 1.0 and module.training',
    ),
    slip(
        "guidance where gradients are on",
        ("T5",),
        "228",
        STEP,
        'guidance["cfg_text_scale"] > 1.0',
        'guidance["cfg_text_scale"] > 1.0 and torch.is_grad_enabled()',
    ),
    mutant(
        "results detached by a helper",
        ("T5", 19),
        "229",
        swap(TRAINING, STEP, RESULT, "return _plain(log_prob, prev_sample_mean, std_dev_t, sqrt_dt)"),
        add(TRAINING, "", HELPER),
    ),
    mutant(
        "next latents shifted twice",
        ("T5",),
        "220",
        swap(
            TRAINING,
            STEP,
            "velocity = module(**model_inputs)[0].float()",
            "following = latents[:, 1:]\nvelocity = module(**model_inputs)[0].float()",
        ),
        argument(TRAINING, STEP, SAMPLE, "prev_sample", "following[:, step + 1].float()"),
    ),
    slip(
        "one norm for the micro-batch",
        ("T5",),
        "228",
        "_renormed",
        "torch.linalg.vector_norm(guided, dim=dims, keepdim=True)",
        "torch.linalg.vector_norm(guided)",
    ),
]
