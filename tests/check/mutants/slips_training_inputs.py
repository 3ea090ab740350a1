"""Small slips in what the training adapter hands to the module."""

from mutants.edit import swap
from mutants.mutant import TRAINING, Mutant, mutant

ADAPTER = "BagelDiffusion"
INPUTS = f"{ADAPTER}.prepare_model_inputs"
COLUMN = f"{ADAPTER}._prompt_token_ids_to_batch"
MASKED = "torch.arange(ids.shape[1], device=device) < torch.tensor(lengths, device=device)[:, None]"
PAIR = 'return conditional, {**shared, "text_token_ids": None, "text_attention_mask": None}'


def slip(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant with one expression or one run of statements changed."""
    return mutant(name, items, rules, swap(TRAINING, within, old, new))


MUTANTS = [
    # Inputs
    slip("next latents taken", ("T4",), "220", INPUTS, "latents[:, step]", "latents[:, step + 1]"),
    slip("first latents taken", ("T4",), "220", INPUTS, "latents[:, step]", "latents[:, 0]"),
    slip("next timestep taken", ("T4",), "220", INPUTS, "timesteps[:, step]", "timesteps[:, step + 1]"),
    slip(
        "all timesteps taken",
        ("T4",),
        "220",
        INPUTS,
        "timestep_features(timesteps[:, step])",
        "timestep_features(timesteps)",
    ),
    slip("sample instead of step", ("T4",), "220", INPUTS, "latents[:, step]", "latents[step]"),
    slip("last timestep taken", ("T4",), "220", INPUTS, "timesteps[:, step]", "timesteps[:, -1]"),
    slip(
        "ids of the prompt for both branches",
        ("T4", "T5"),
        "221 212",
        INPUTS,
        PAIR,
        'return conditional, {**shared, "text_token_ids": ids, "text_attention_mask": mask}',
    ),
    slip("the same dictionary twice", ("T4", "T5"), "221 212", INPUTS, PAIR, "return conditional, conditional"),
    slip(
        "nothing returned",
        ("T4",),
        "208",
        INPUTS,
        PAIR,
        'unconditional = {**shared, "text_token_ids": None, "text_attention_mask": None}',
    ),
    slip(
        "pair nested",
        ("T4",),
        "208 212",
        INPUTS,
        PAIR,
        'return (conditional, {**shared, "text_token_ids": None, "text_attention_mask": None}), None',
    ),
    slip("mask includes one more", ("T4", 8), "226", COLUMN, MASKED, MASKED.replace(" < ", " <= ")),
    slip("mask upside down in training", ("T4", 8), "226", COLUMN, MASKED, MASKED.replace(" < ", " >= ")),
    slip(
        "mask of one length",
        ("T4", 8, 14),
        "226 118 216",
        COLUMN,
        MASKED,
        "torch.arange(ids.shape[1], device=device) < max(lengths)",
    ),
    slip("mask dropped", ("T4", 8), "117 216", COLUMN, f"return ids, {MASKED}", "return ids, None"),
    slip(
        "padding on the left",
        ("T4", 8),
        "226",
        COLUMN,
        "torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)",
        'torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_side="left")',
    ),
    slip(
        "batch not first",
        ("T4",),
        "226",
        COLUMN,
        "torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)",
        "torch.nn.utils.rnn.pad_sequence(rows)",
    ),
    slip(
        "prompts of the chat template",
        ("T4", "D2", 28),
        "207",
        COLUMN,
        """
if "prompt_token_ids" not in micro_batch.keys():
    raise KeyError(
        "the micro-batch has no column 'prompt_token_ids'; BagelPipeline does not tokenise like the"
        " chat template, so 'prompts' cannot stand in: write the column in the data preprocessor"
    )
prompts = cls._unwrap_column(micro_batch)
""",
        'prompts = micro_batch["prompts"]',
    ),
    slip(
        "column misspelt in one place",
        ("T4", "D2", 28),
        "207",
        f"{ADAPTER}._unwrap_column",
        '"prompt_token_ids"',
        '"prompt_tokens_ids"',
    ),
    slip(
        "falls back to the chat's ids",
        ("D2", 28),
        "207",
        COLUMN,
        "raise KeyError(\"the micro-batch has no column 'prompt_token_ids'; BagelPipeline does not tokenise like the\"\n\" chat template, so 'prompts' cannot stand in: write the column in the data preprocessor\")",
        'prompts = micro_batch["prompts"]',
    ),
    slip(
        "key of forward misspelt in one branch",
        ("T4", 27),
        "206",
        INPUTS,
        '{**shared, "text_token_ids": None, "text_attention_mask": None}',
        '{**shared, "text_token_ids": None, "attention_mask": None}',
    ),
    slip("latents' key of diffusers", ("T4", 27), "206", INPUTS, '"hidden_states"', '"sample"'),
]
