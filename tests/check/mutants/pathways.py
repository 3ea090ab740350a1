"""Embeddings, pathways, boundary tokens, positions and masks inside of the training module."""

from mutants.edit import add, line, swap
from mutants.mutant import MODEL, TRAINING, mutant

FORWARD = "BagelForTraining.forward"
ATTENTION = "BagelAttention.forward"
LAYER = "BagelMoTLayer.forward"
MLP = "BagelMLP.forward"
LAYOUT = "Layout.__init__"
MARKERS = "(self.config.start_of_image_id, self.config.end_of_image_id)"

MUTANTS = [
    # Embeddings
    mutant(
        "time embedding not added",
        ("M7",),
        "121",
        line(MODEL, FORWARD, "latents = latents + self.time_embedder(features.to(context.dtype))[:, None]"),
    ),
    mutant(
        "position embedding not added",
        ("M7",),
        "121",
        line(MODEL, FORWARD, "latents = (latents + self.latent_pos_embed(latent_pos_ids)).to(context.dtype)"),
    ),
    mutant(
        "velocity projected with the wrong layer", ("M7",), "121", swap(MODEL, FORWARD, "self.llm2vae", "self.vae2llm")
    ),
    mutant(
        "latents go in as they are",
        ("M7",),
        "121",
        swap(MODEL, FORWARD, "self.vae2llm(hidden_states.to(context.dtype))", "hidden_states.to(context.dtype)"),
    ),
    mutant(
        "no position embedding at all",
        ("M7",),
        "401 403 408",
        line(
            MODEL, "BagelForTraining.__init__", "self.latent_pos_embed = PositionTable(config.max_latent_size, hidden)"
        ),
        line(MODEL, FORWARD, "latents = (latents + self.latent_pos_embed(latent_pos_ids)).to(context.dtype)"),
    ),
    mutant(
        "random text embeddings",
        ("M7",),
        "121",
        swap(
            MODEL,
            FORWARD,
            "self.embed_tokens(torch.cat(ids, dim=1))",
            "torch.randn(batch, text_length + 2, self.config.hidden_size, device=device)",
        ),
    ),
    # Pathways
    mutant(
        "latents through the text's query projection",
        ("M8",),
        "121 127",
        swap(MODEL, ATTENTION, "self.q_proj_moe_gen", "self.q_proj"),
    ),
    mutant("one MLP for both streams", ("M8",), "121 127", swap(MODEL, LAYER, "self.mlp_moe_gen", "self.mlp")),
    mutant(
        "last norm of the text for the latents",
        ("M8",),
        "121 127",
        swap(MODEL, FORWARD, "self.norm_moe_gen", "self.norm"),
    ),
    mutant(
        "norms of queries crossed",
        ("M8", 23),
        "127",
        swap(MODEL, ATTENTION, "self.q_norm(q_context.float())", "self.q_norm_moe_gen(q_context.float())"),
        line(MODEL, ATTENTION, "q_latents = self.q_norm_moe_gen(q_latents)", "q_latents = self.q_norm(q_latents)"),
    ),
    mutant(
        "value projections crossed",
        ("M8", 23),
        "127",
        swap(MODEL, ATTENTION, "self.v_proj(context)", "self.v_proj_moe_gen(context)"),
        swap(MODEL, ATTENTION, "self.v_proj_moe_gen(latents)", "self.v_proj(latents)"),
    ),
    mutant(
        "MLPs crossed",
        ("M8", 23),
        "127",
        swap(
            MODEL,
            LAYER,
            "self.mlp(self.post_attention_layernorm(context))",
            "self.mlp_moe_gen(self.post_attention_layernorm(context))",
        ),
        swap(
            MODEL,
            LAYER,
            "self.mlp_moe_gen(self.post_attention_layernorm_moe_gen(latents))",
            "self.mlp(self.post_attention_layernorm_moe_gen(latents))",
        ),
    ),
    mutant(
        "output projection made, the shared one used",
        ("M8", 22),
        "121 127",
        swap(MODEL, ATTENTION, "self.o_proj_moe_gen", "self.o_proj"),
    ),
    mutant(
        "second norm of the latents left out",
        ("M8", 22),
        "121",
        swap(MODEL, LAYER, "self.post_attention_layernorm_moe_gen(latents)", "latents"),
    ),
    mutant(
        "gate and up exchanged",
        (23,),
        "128",
        swap(MODEL, MLP, "F.silu(self.gate_proj(x)) * self.up_proj(x)", "F.silu(self.up_proj(x)) * self.gate_proj(x)"),
    ),
    mutant(
        "gate and up exchanged by way of variables",
        (23,),
        "128",
        line(
            MODEL,
            MLP,
            "return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))",
            "gate = self.gate_proj(x)\nup = self.up_proj(x)\nreturn self.down_proj(gate * F.silu(up))",
        ),
    ),
    # Boundary tokens
    mutant("end of image forgotten", ("M9",), "122", swap(MODEL, FORWARD, MARKERS, "(self.config.start_of_image_id,)")),
    mutant("no boundary tokens", ("M9",), "122", swap(MODEL, FORWARD, MARKERS, "()")),
    mutant(
        "start of image twice",
        ("M9",),
        "122",
        swap(MODEL, FORWARD, "self.config.end_of_image_id", "self.config.start_of_image_id"),
    ),
    mutant("boundary tokens as numbers", ("M9",), "122 123", swap(MODEL, FORWARD, MARKERS, "(151652, 151653)")),
    mutant(
        "boundary tokens as numbers of the module",
        ("M9",),
        "122 123",
        add(MODEL, "", "START_OF_IMAGE_ID = 151652\nEND_OF_IMAGE_ID = 151653"),
        swap(MODEL, FORWARD, MARKERS, "(START_OF_IMAGE_ID, END_OF_IMAGE_ID)"),
    ),
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
    # Weights behind LoRA
    mutant(
        "projection through its weight",
        (34,),
        "120",
        swap(
            MODEL,
            ATTENTION,
            "self.q_proj_moe_gen(latents)",
            "F.linear(latents, self.q_proj_moe_gen.weight, self.q_proj_moe_gen.bias)",
        ),
    ),
    mutant(
        "projection as a matrix product",
        (34,),
        "120",
        swap(
            MODEL,
            ATTENTION,
            "self.o_proj_moe_gen(attend(q_latents, k, v, layout.key_mask))",
            "attend(q_latents, k, v, layout.key_mask) @ self.o_proj_moe_gen.weight.t()",
        ),
    ),
    mutant(
        "two projections as one product of joined weights",
        (34,),
        "120",
        line(
            MODEL,
            MLP,
            "return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))",
            """
                both = F.linear(x, torch.cat((self.gate_proj.weight, self.up_proj.weight)))
                gate, up = both.chunk(2, dim=-1)
                return self.down_proj(F.silu(gate) * up)
                """,
        ),
    ),
    mutant(
        "another module's weight",
        (34,),
        "120",
        swap(
            MODEL,
            LAYER,
            "self.mlp_moe_gen(self.post_attention_layernorm_moe_gen(latents))",
            "self.mlp_moe_gen(self.post_attention_layernorm_moe_gen(latents).to(self.mlp_moe_gen.up_proj.weight.dtype))"
            " + latents @ self.self_attn.o_proj_moe_gen.weight",
        ),
    ),
]
