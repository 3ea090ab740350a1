"""Small slips in the training step and its guidance."""

from mutants.edit import argument, decorate, drop_argument, swap
from mutants.mutant import TRAINING, Mutant, mutant

ADAPTER = "BagelDiffusion"
STEP = f"{ADAPTER}.forward_and_sample_previous_step"
SAMPLE = "scheduler.sample_previous_step"
GUIDE = "velocity = guide(velocity, unconditional, timesteps[:, step], guidance)"
UNCONDITIONAL = "unconditional = module(**negative_model_inputs)[0].float()"
FORMULA = 'unconditional + guidance["cfg_text_scale"] * (conditional - unconditional)'
ACTIVE = "active = (sigma > low) & (sigma <= high)"
RESULT = "return log_prob, prev_sample_mean, std_dev_t, sqrt_dt"


def slip(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant with one expression or one run of statements changed."""
    return mutant(name, items, rules, swap(TRAINING, within, old, new))


def given(name: str, items: tuple, rules: str, argument_name: str, code: str) -> Mutant:
    """Return a mutant that gives the scheduler something else."""
    return mutant(name, items, rules, argument(TRAINING, STEP, SAMPLE, argument_name, code))


MUTANTS = [
    # Step
    slip(
        "guidance when it is switched off",
        ("T5",),
        "228",
        STEP,
        'guidance["cfg_text_scale"] > 1.0',
        'guidance["cfg_text_scale"] < 1.0',
    ),
    slip("guidance of a literal scale", ("T5", 29), "205 228", "guide", 'guidance["cfg_text_scale"]', "4.0"),
    slip(
        "guidance with the image's scale",
        ("T5",),
        "228",
        "guide",
        FORMULA,
        'unconditional + guidance["cfg_img_scale"] * (conditional - unconditional)',
    ),
    slip(
        "guidance from the conditional velocity",
        ("T5",),
        "221 228",
        "guide",
        FORMULA,
        'conditional + guidance["cfg_text_scale"] * (conditional - unconditional)',
    ),
    slip(
        "sum instead of a difference",
        ("T5",),
        "221 228",
        "guide",
        FORMULA,
        'unconditional + guidance["cfg_text_scale"] * (conditional + unconditional)',
    ),
    slip(
        "difference the wrong way round",
        ("T5",),
        "221",
        "guide",
        FORMULA,
        'unconditional + guidance["cfg_text_scale"] * (unconditional - conditional)',
    ),
    slip(
        "guidance of scale minus one",
        ("T5",),
        "221 228",
        "guide",
        FORMULA,
        'unconditional + (guidance["cfg_text_scale"] - 1) * (conditional - unconditional)',
    ),
    slip(
        "gating upside down",
        ("T5",),
        "221 228",
        "guide",
        "torch.where(active.view(-1, 1, 1), guided, conditional)",
        "torch.where(active.view(-1, 1, 1), conditional, guided)",
    ),
    slip(
        "interval closed on the other side", ("T5",), "228", "guide", ACTIVE, "active = (sigma >= low) & (sigma < high)"
    ),
    slip("interval of or", ("T5",), "228", "guide", ACTIVE, "active = (sigma > low) | (sigma <= high)"),
    slip(
        "interval's ends exchanged",
        ("T5",),
        "228",
        "guide",
        'low, high = guidance["cfg_interval"]',
        'high, low = guidance["cfg_interval"]',
    ),
    slip(
        "interval not looked at",
        ("T5",),
        "134 228",
        "guide",
        "return torch.where(active.view(-1, 1, 1), guided, conditional)",
        "return guided",
    ),
    slip(
        "guidance of the next noise level",
        ("T5",),
        "220",
        STEP,
        GUIDE,
        "velocity = guide(velocity, unconditional, timesteps[:, step + 1], guidance)",
    ),
    slip(
        "guided velocity dropped",
        ("T5",),
        "212",
        STEP,
        GUIDE,
        "guide(velocity, unconditional, timesteps[:, step], guidance)",
    ),
    slip("unconditional branch for all", ("T5",), "221 212", STEP, GUIDE, "velocity = unconditional"),
    slip(
        "unconditional branch without gradients",
        ("T5", 19),
        "125 229",
        STEP,
        UNCONDITIONAL,
        f"with torch.no_grad():\n    {UNCONDITIONAL}",
    ),
    slip(
        "step without gradients",
        (19,),
        "125 229",
        STEP,
        "velocity = module(**model_inputs)[0].float()",
        "with torch.no_grad():\n    velocity = module(**model_inputs)[0].float()",
    ),
    mutant(
        "whole step without gradients", (19,), "125 229", decorate(TRAINING, STEP, "classmethod", "torch.no_grad()")
    ),
    slip(
        "velocity detached",
        (19,),
        "125 229",
        STEP,
        "velocity = module(**model_inputs)[0].float()",
        "velocity = module(**model_inputs)[0].detach().float()",
    ),
    slip(
        "tuple not unpacked",
        (39, "T5"),
        "108 230",
        STEP,
        "velocity = module(**model_inputs)[0].float()",
        "velocity = module(**model_inputs).float()",
    ),
    slip(
        "second value of one",
        (39, "T5"),
        "108 230",
        STEP,
        "velocity = module(**model_inputs)[0].float()",
        "velocity = module(**model_inputs)[1].float()",
    ),
    slip(
        "answer read as diffusers' output",
        (39, "T5"),
        "108 230",
        STEP,
        "velocity = module(**model_inputs)[0].float()",
        "velocity = module(**model_inputs).sample.float()",
    ),
    slip("inputs by position", (27, "T5"), "206 230", STEP, "module(**model_inputs)", "module(model_inputs)"),
    given("velocity with its sign turned", ("T5",), "221", "model_output", "-velocity"),
    given("next timestep to the scheduler", ("T5",), "220", "timestep", "timesteps[:, step + 1]"),
    given("first timestep to the scheduler", ("T5",), "220 217", "timestep", "timesteps[:, 0]"),
    given("previous sample as the next", ("T5",), "220", "prev_sample", "latents[:, step - 1].float()"),
    given("last sample as the next", ("T5",), "220", "prev_sample", "latents[:, -1].float()"),
    given("one sample too far", ("T5",), "220", "prev_sample", "latents[:, step + 2].float()"),
    mutant("next sample not given", ("T5",), "220", drop_argument(TRAINING, STEP, SAMPLE, "prev_sample")),
    given("noise level of the rollout's config", (7,), "211", "noise_level", "0.0"),
    given("noise level from another section", (7,), "211", "noise_level", "model_config.pipeline.noise_level"),
    given("SDE type for the noise level", (7,), "211", "noise_level", "model_config.algo.sde_type"),
    given("SDE type with a fallback", (7,), "211", "sde_type", 'getattr(model_config, "sde_type", "sde")'),
    given("normaliser turned", (7,), "210", "include_logprob_normalizer", "not INCLUDE_LOGPROB_NORMALIZER"),
    given("latents in half precision", (13,), "213", "sample", "latents[:, step].half()"),
    given("velocity in bf16", (13,), "213", "model_output", "velocity.bfloat16()"),
    slip("log-prob negated", ("T5",), "209", STEP, RESULT, "return -log_prob, prev_sample_mean, std_dev_t, sqrt_dt"),
    slip(
        "log-prob averaged over the batch",
        ("T5", 6),
        "209",
        STEP,
        RESULT,
        "return log_prob.mean(), prev_sample_mean, std_dev_t, sqrt_dt",
    ),
    slip(
        "log-prob detached",
        ("T5", 19),
        "209 125 229",
        STEP,
        RESULT,
        "return log_prob.detach(), prev_sample_mean, std_dev_t, sqrt_dt",
    ),
    slip("sqrt_dt returned twice", ("T5",), "209", STEP, RESULT, "return log_prob, prev_sample_mean, sqrt_dt, sqrt_dt"),
    slip(
        "five values returned",
        ("T5",),
        "209",
        STEP,
        RESULT,
        "return log_prob, prev_sample_mean, std_dev_t, sqrt_dt, velocity",
    ),
]
