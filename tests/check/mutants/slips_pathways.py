"""Small slips in embeddings, pathways and boundary tokens."""

from mutants.edit import swap
from mutants.mutant import MODEL, Mutant, mutant

MODULE = "BagelForTraining"
CONFIG = "BagelTrainingConfig"
FORWARD = f"{MODULE}.forward"
READ = f"{CONFIG}.from_model_path"
ATTENTION = "BagelAttention.forward"
LAYER = "BagelMoTLayer.forward"
MARKER = "ids.append(torch.full((batch, 1), marker, device=device))"


def slip(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant with one expression or one run of statements changed."""
    return mutant(name, items, rules, swap(MODEL, within, old, new))


MUTANTS = [
    # Embeddings and pathways
    slip(
        "update of the other stream",
        ("M8",),
        "134 127",
        LAYER,
        "latents = latents + latents_update",
        "latents = latents + context_update",
    ),
    mutant(
        "projections of the outputs exchanged",
        ("M8",),
        "127",
        swap(
            MODEL,
            ATTENTION,
            "self.o_proj_moe_gen(attend(q_latents, k, v, layout.key_mask))",
            "self.o_proj(attend(q_latents, k, v, layout.key_mask))",
        ),
        swap(
            MODEL, ATTENTION, "self.o_proj(torch.cat(updates, dim=1))", "self.o_proj_moe_gen(torch.cat(updates, dim=1))"
        ),
    ),
    slip(
        "updates returned in the other order",
        ("M8",),
        "127 129",
        ATTENTION,
        "return context_update, latents_update",
        "return latents_update, context_update",
    ),
    slip(
        "values in another order than keys",
        ("M8",),
        "127",
        ATTENTION,
        "torch.cat((v_context, v_latents), dim=1)",
        "torch.cat((v_latents, v_context), dim=1)",
    ),
    slip(
        "values taken for keys",
        ("M8",),
        "134 127",
        ATTENTION,
        "torch.cat((k_context, k_latents), dim=1)",
        "torch.cat((k_context, v_latents), dim=1)",
    ),
    slip(
        "one feed-forward block for both",
        ("M8",),
        "121 127",
        LAYER,
        "self.mlp_moe_gen(self.post_attention_layernorm_moe_gen(latents))",
        "self.mlp(self.post_attention_layernorm_moe_gen(latents))",
    ),
    slip(
        "one norm for both behind attention",
        ("M8",),
        "121 127",
        LAYER,
        "self.post_attention_layernorm_moe_gen(latents)",
        "self.post_attention_layernorm(latents)",
    ),
    slip("text's norm in the end", ("M8",), "121 127", FORWARD, "self.norm_moe_gen(latents)", "self.norm(latents)"),
    slip(
        "the text is projected to a velocity",
        ("M8", "M7"),
        "121 127 129",
        FORWARD,
        "(self.llm2vae(self.norm_moe_gen(latents)),)",
        "(self.llm2vae(self.norm_moe_gen(context)),)",
    ),
    slip(
        "keys normed with the queries' norm",
        ("M8",),
        "121 127",
        ATTENTION,
        "self.k_norm_moe_gen(k_latents)",
        "self.q_norm_moe_gen(k_latents)",
    ),
    slip("queries never normed", ("M8",), "121", ATTENTION, "q_latents = self.q_norm_moe_gen(q_latents)"),
    slip(
        "generation weights made from the text's",
        ("M8", 22),
        "121 127 403 408",
        "BagelAttention.__init__",
        "self.q_proj_moe_gen = nn.Linear(hidden, q_size, bias=True)",
        "self.q_proj_moe_gen = self.q_proj",
    ),
    slip(
        "a projection without its bias",
        (22,),
        "403 408",
        "BagelAttention.__init__",
        "self.k_proj_moe_gen = nn.Linear(hidden, kv_size, bias=True)",
        "self.k_proj_moe_gen = nn.Linear(hidden, kv_size, bias=False)",
    ),
    slip(
        "a projection with a bias too many",
        (22,),
        "403 408",
        "BagelAttention.__init__",
        "self.o_proj_moe_gen = nn.Linear(q_size, hidden, bias=False)",
        "self.o_proj_moe_gen = nn.Linear(q_size, hidden)",
    ),
    slip(
        "projections between the spaces exchanged",
        ("M7",),
        "403 408 121",
        f"{MODULE}.__init__",
        "self.vae2llm = nn.Linear(config.patch_latent_dim, hidden)\nself.llm2vae = nn.Linear(hidden, config.patch_latent_dim)",
        "self.vae2llm = nn.Linear(hidden, config.patch_latent_dim)\nself.llm2vae = nn.Linear(config.patch_latent_dim, hidden)",
    ),
    slip(
        "positions of the latents twice, time never",
        ("M7",),
        "121",
        FORWARD,
        "latents + self.time_embedder(features.to(context.dtype))[:, None]",
        "latents + self.latent_pos_embed(latent_pos_ids)",
    ),
    slip(
        "position ids not used",
        ("M7",),
        "135",
        FORWARD,
        "self.latent_pos_embed(latent_pos_ids)",
        "self.latent_pos_embed(torch.arange(latents.shape[1], device=device))",
    ),
    slip(
        "layers' list replaced",
        ("M7", "M8"),
        "136",
        f"{MODULE}.__init__",
        "nn.ModuleList(BagelMoTLayer(config) for _ in range(config.num_hidden_layers))",
        "[BagelMoTLayer(config) for _ in range(config.num_hidden_layers)]",
    ),
    slip(
        "number of layers written down",
        ("M7", "M8"),
        "114 403 408",
        f"{MODULE}.__init__",
        "range(config.num_hidden_layers)",
        "range(28)",
    ),
    # Boundary tokens
    slip(
        "boundary tokens in the other order",
        ("M9",),
        "122",
        FORWARD,
        "(self.config.start_of_image_id, self.config.end_of_image_id)",
        "(self.config.end_of_image_id, self.config.start_of_image_id)",
    ),
    slip(
        "start token twice",
        ("M9",),
        "122",
        FORWARD,
        "(self.config.start_of_image_id, self.config.end_of_image_id)",
        "(self.config.start_of_image_id, self.config.start_of_image_id)",
    ),
    slip(
        "only one boundary token",
        ("M9",),
        "122",
        FORWARD,
        "(self.config.start_of_image_id, self.config.end_of_image_id)",
        "(self.config.start_of_image_id,)",
    ),
    slip(
        "boundary tokens never embedded",
        ("M9",),
        "122",
        FORWARD,
        MARKER,
        "marker = torch.full((batch, 1), marker, device=device)",
    ),
    slip(
        "boundary tokens' texts exchanged",
        ("M9", 36),
        "132",
        READ,
        '_token_id(model_path, "<|vision_end|>", root.get("end_of_image_id", cls.end_of_image_id))',
        '_token_id(model_path, "<|vision_start|>", root.get("end_of_image_id", cls.end_of_image_id))',
    ),
    slip(
        "end token by the start's field",
        ("M9", 36),
        "132",
        READ,
        '_token_id(model_path, "<|vision_end|>", root.get("end_of_image_id", cls.end_of_image_id))',
        '_token_id(model_path, "<|vision_end|>", root.get("start_of_image_id", cls.start_of_image_id))',
    ),
    slip(
        "one boundary token as a number",
        ("M9",),
        "122 123",
        FORWARD,
        "(self.config.start_of_image_id, self.config.end_of_image_id)",
        "(self.config.start_of_image_id, 151653)",
    ),
]
