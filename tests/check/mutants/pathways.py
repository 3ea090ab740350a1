"""Embeddings, pathways and boundary tokens inside of the training module."""

from mutants.edit import add, line, swap
from mutants.mutant import MODEL, mutant

FORWARD = "BagelForTraining.forward"
ATTENTION = "BagelAttention.forward"
LAYER = "BagelMoTLayer.forward"
MLP = "BagelMLP.forward"
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
