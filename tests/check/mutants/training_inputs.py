"""What the training adapter hands to the module."""

from mutants.edit import line, rename, signature, swap
from mutants.mutant import MODEL, TRAINING, mutant

ADAPTER = "BagelDiffusion"
INPUTS = f"{ADAPTER}.prepare_model_inputs"
STEP = f"{ADAPTER}.forward_and_sample_previous_step"
COLUMN = f"{ADAPTER}._prompt_token_ids_to_batch"
PAIR = 'return conditional, {**shared, "text_token_ids": None, "text_attention_mask": None}'

MUTANTS = [
    # Inputs
    mutant("one dictionary instead of a pair", ("T4",), "208", line(TRAINING, INPUTS, PAIR, "return conditional")),
    mutant("three dictionaries", ("T4",), "208", line(TRAINING, INPUTS, PAIR, PAIR + ", shared")),
    mutant(
        "pair in the wrong order",
        ("T4", "T5"),
        "208 221 212",
        line(
            TRAINING,
            INPUTS,
            PAIR,
            'return {**shared, "text_token_ids": None, "text_attention_mask": None}, conditional',
        ),
    ),
    mutant(
        "inputs under the wrong key",
        ("T4", 27),
        "206",
        swap(TRAINING, INPUTS, '"latent_pos_ids"', '"latent_position_ids"'),
    ),
    mutant(
        "text ids missing in one branch",
        ("T4", 27),
        "206",
        line(TRAINING, INPUTS, PAIR, 'return conditional, {**shared, "text_attention_mask": None}'),
    ),
    mutant(
        "mask under the name of another model",
        (27,),
        "206",
        line(
            TRAINING,
            INPUTS,
            'conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}',
            "conditional = dict(shared, text_token_ids=ids, encoder_attention_mask=mask)",
        ),
    ),
    mutant(
        "forward renames a parameter",
        (27,),
        "206",
        rename(MODEL, "BagelForTraining.forward", "latent_pos_ids", "position_ids"),
    ),
    mutant(
        "forward wants one argument more",
        (27,),
        "206",
        signature(
            MODEL,
            "BagelForTraining.forward",
            "def forward(self, hidden_states: Tensor, timestep: Tensor, text_token_ids: Tensor | None,"
            " latent_pos_ids: Tensor, guidance: Tensor, text_attention_mask: Tensor | None = None)",
        ),
    ),
    mutant(
        "key added by update()",
        (27,),
        "206",
        line(
            TRAINING,
            INPUTS,
            'conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}',
            'conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}\nconditional["step"] = step',
        ),
    ),
    mutant(
        "mask left out for the conditional branch",
        (8,),
        "206 117",
        line(
            TRAINING,
            INPUTS,
            'conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}',
            'conditional = {**shared, "text_token_ids": ids}',
        ),
    ),
    mutant(
        "column that nobody writes",
        ("D2", 28, "T4"),
        "207",
        swap(
            TRAINING, COLUMN, '"prompt_token_ids" not in micro_batch.keys()', '"caption_ids" not in micro_batch.keys()'
        ),
        swap(TRAINING, f"{ADAPTER}._unwrap_column", 'micro_batch["prompt_token_ids"]', 'micro_batch["caption_ids"]'),
    ),
    mutant(
        "reads the prompt's embeddings of another stage",
        (28,),
        "207",
        line(
            TRAINING,
            INPUTS,
            "ids, mask = cls._prompt_token_ids_to_batch(micro_batch, latents.device)",
            'ids, mask = micro_batch["text_input_ids"], micro_batch["text_input_mask"]',
        ),
    ),
    mutant(
        "get() of a key that nobody writes",
        (28,),
        "207",
        line(
            TRAINING,
            COLUMN,
            "lengths = [len(row) for row in rows]",
            'lengths = [len(row) for row in rows]\nif micro_batch.get("prompt_lengths") is not None:\n'
            '    lengths = micro_batch["prompt_lengths"].tolist()',
        ),
    ),
    mutant(
        "sigmas expected from the rollout",
        (28,),
        "207",
        line(
            TRAINING,
            INPUTS,
            'config = getattr(module, "module", module).config',
            'config = getattr(module, "module", module).config\ntimesteps = micro_batch["rollout_sigmas"]',
        ),
    ),
    mutant(
        "mask of ones after padding",
        (9,),
        "216 117",
        line(
            TRAINING,
            COLUMN,
            "return ids, torch.arange(ids.shape[1], device=device) < torch.tensor(lengths, device=device)[:, None]",
            "return ids, torch.ones_like(ids, dtype=torch.bool)",
        ),
    ),
    mutant(
        "mask of ones with torch.ones",
        (9,),
        "216 117",
        line(
            TRAINING,
            COLUMN,
            "return ids, torch.arange(ids.shape[1], device=device) < torch.tensor(lengths, device=device)[:, None]",
            "mask = torch.ones(ids.shape, dtype=torch.bool, device=device)\nreturn ids, mask",
        ),
    ),
    mutant(
        "mask of ones in the inputs",
        (9,),
        "216 117",
        line(
            TRAINING,
            INPUTS,
            'conditional = {**shared, "text_token_ids": ids, "text_attention_mask": mask}',
            'conditional = {**shared, "text_token_ids": ids, "text_attention_mask": torch.ones_like(ids)}',
        ),
    ),
    mutant(
        "config read from the wrapped module",
        (35,),
        "214",
        swap(TRAINING, INPUTS, 'getattr(module, "module", module).config', "module.config"),
    ),
    mutant(
        "dtype asked of the wrapped module's layer",
        (35,),
        "214",
        line(
            TRAINING,
            STEP,
            "velocity = module(**model_inputs)[0].float()",
            'model_inputs = {**model_inputs, "hidden_states": model_inputs["hidden_states"].to(module.embed_tokens.weight.dtype)}\n'
            "velocity = module(**model_inputs)[0].float()",
        ),
    ),
    mutant(
        "table size asked of the wrapped module",
        (35,),
        "214",
        swap(
            TRAINING,
            INPUTS,
            "cls._latent_pos_ids(config, model_config, latents)",
            "cls._latent_pos_ids(config, model_config, latents) % module.latent_pos_embed.pos_embed.shape[0]",
        ),
    ),
]
