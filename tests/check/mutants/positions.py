"""Positions, masks and timesteps inside of the training module."""

from mutants.edit import line, swap
from mutants.mutant import MODEL, TRAINING, mutant

FORWARD = "BagelForTraining.forward"
LAYOUT = "Layout.__init__"

MUTANTS = [
    # Positions and masks
    mutant(
        "image tokens at the padded length",
        (1,),
        "119",
        line(MODEL, LAYOUT, "first = text_mask.sum(dim=1, keepdim=True, dtype=torch.float32)"),
    ),
    mutant(
        "image tokens at the padded length, from the shape",
        (1,),
        "119",
        line(
            MODEL,
            LAYOUT,
            "first = text_mask.sum(dim=1, keepdim=True, dtype=torch.float32)",
            "first = torch.full((1, 1), float(text_mask.shape[1]), device=device)",
        ),
    ),
    mutant(
        "image tokens at the longest text of the batch",
        (1, 14),
        "118 119",
        line(
            MODEL,
            LAYOUT,
            "first = text_mask.sum(dim=1, keepdim=True, dtype=torch.float32)",
            "first = text_mask.sum(dim=1).max().float()",
        ),
    ),
    mutant(
        "padded keys attended to",
        (8,),
        "117",
        line(MODEL, LAYOUT, "self.key_mask = F.pad(text_mask, (0, 2 + latent_length), value=True)"),
    ),
    mutant(
        "mask taken by attention and not used",
        (8,),
        "117",
        line(
            MODEL,
            "attend",
            "out = F.scaled_dot_product_attention(q, k, v, attn_mask=key_mask[:, None, None, :])",
            "out = F.scaled_dot_product_attention(q, k, v)",
        ),
    ),
    mutant(
        "mask not handed on to the layout",
        (8,),
        "117",
        swap(
            MODEL,
            FORWARD,
            "Layout(text_length, text_attention_mask, latents.shape[1], self.config, device)",
            "Layout(text_length, None, latents.shape[1], self.config, device)",
        ),
    ),
    mutant(
        "positions counted to the sum of the mask",
        (14,),
        "118",
        line(
            MODEL,
            LAYOUT,
            "text_mask = text_mask.to(torch.bool)",
            "text_mask = text_mask.to(torch.bool)\n"
            "positions = torch.arange(text_mask.sum(), dtype=torch.float32, device=device)[None]",
        ),
    ),
    mutant(
        "padding up to the mask's sum",
        (14,),
        "118",
        line(
            MODEL,
            LAYOUT,
            "positions = F.pad(positions - first, (0, 2))",
            "positions = F.pad(positions - first, (0, 2))\n"
            "if text_mask is not None:\n    positions = positions[:, : int(text_mask.sum()) + 2]",
        ),
    ),
    mutant(
        "rotary table as long as the mask's sum",
        (14,),
        "118",
        line(
            MODEL,
            LAYOUT,
            "self.rotary = rotary_tables(positions, config.head_dim, config.rope_theta)",
            """
                length = text_length if text_mask is None else int(text_mask.sum().item())
                steps = torch.arange(length, dtype=torch.float32, device=device)[None]
                self.rotary = rotary_tables(F.pad(steps - first, (0, 2)), config.head_dim, config.rope_theta)
                """,
        ),
    ),
    mutant(
        "table sized by the adapter's mask",
        (14,),
        "118",
        line(
            TRAINING,
            "BagelDiffusion._prompt_token_ids_to_batch",
            "return ids, torch.arange(ids.shape[1], device=device) < torch.tensor(lengths, device=device)[:, None]",
            """
                mask = torch.arange(ids.shape[1], device=device) < torch.tensor(lengths, device=device)[:, None]
                return ids[:, : int(mask.sum())], mask
                """,
        ),
    ),
    # Timesteps
    mutant(
        "features of whole timesteps",
        (33,),
        "124",
        line(
            MODEL,
            FORWARD,
            "features = timestep_features(timestep) if timestep.ndim == 1 else timestep",
            "features = timestep_features(timestep.long()) if timestep.ndim == 1 else timestep",
        ),
    ),
    mutant(
        "noise levels as thousandths",
        (33,),
        "124",
        line(
            MODEL,
            "timestep_features",
            "half = 256 // 2",
            "half = 256 // 2\ntimestep = (timestep * 1000).to(torch.int64)",
        ),
    ),
    mutant(
        "timestep rounded in the adapter",
        (33,),
        "124",
        swap(
            TRAINING,
            "BagelDiffusion.prepare_model_inputs",
            "timestep_features(timesteps[:, step])",
            "timestep_features(timesteps[:, step].int())",
        ),
    ),
    mutant(
        "timestep rounded to whole numbers",
        (33,),
        "124",
        swap(
            TRAINING,
            "BagelDiffusion.prepare_model_inputs",
            "timestep_features(timesteps[:, step])",
            "timestep_features((timesteps[:, step] * 1000).round())",
        ),
    ),
]
