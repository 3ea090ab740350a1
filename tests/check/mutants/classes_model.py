"""Classes of mistakes in the training module: hooks passed by, lost sums, mixed layouts, numbers from memory."""

from mutants.edit import line, signature, swap
from mutants.mutant import MODEL, ROLLOUT, TRAINING, mutant

MODULE = "BagelForTraining"
FORWARD = f"{MODULE}.forward"
ATTENTION = "BagelAttention.forward"
LAYER = "BagelMoTLayer.forward"
LAYERS = "context, latents = self._checkpointed_call(layer, context, latents, layout)"
TIME = "self.time_embedder(features.to(context.dtype))[:, None]"
ADDED = f"latents = latents + {TIME}"
PLACED = "latents = (latents + self.latent_pos_embed(latent_pos_ids)).to(context.dtype)"
MLP = "self.mlp_moe_gen(self.post_attention_layernorm_moe_gen(latents))"
TURN = "x * cos + torch.cat((-second, first), dim=-1) * sin"
TABLE = "angles = torch.cat((angles, angles), dim=-1)"
QUERY = "apply_rotary(self.q_norm(q_context.float()), layout.rotary).to(v_context.dtype)"
KEY = "apply_rotary(self.k_norm(k_context.float()), layout.rotary).to(v_context.dtype)"
TEXT = "attend(q_text, k_text, v_text, causal=True)"
RATES = "torch.exp(-math.log(10000.0) * steps / half)"
NAMED = 'name.rpartition("transformer.")[2].replace(".base_layer.", ".")'
SAVED = """(
    (name.replace(".base_layer.", "."), tensor)
    for name, tensor in self.state_dict().items()
    if ".lora_" not in name
)"""


def saved(name: str = 'name.replace(".base_layer.", ".")', test: str = '".lora_" not in name') -> str:
    """Return the weights that are saved, with another name or another test."""
    return f"(({name}, tensor) for name, tensor in self.state_dict().items() if {test})"


MUTANTS = [
    # Hooks
    mutant(
        "a layer's own forward, checkpointed",
        ("M5",),
        "141",
        swap(MODEL, FORWARD, LAYERS, LAYERS.replace("(layer,", "(layer.forward,")),
    ),
    mutant(
        "a layer's own forward, under a name",
        ("M5",),
        "141",
        swap(MODEL, FORWARD, LAYERS, "run = layer.forward\n" + LAYERS.replace("(layer,", "(run,")),
    ),
    mutant(
        "the layers' own forward, in a list",
        ("M5",),
        "141",
        swap(MODEL, FORWARD, LAYERS, LAYERS.replace("(layer,", "(type(layer).forward, layer,")),
    ),
    mutant(
        "the trained module's own forward",
        ("T5", 35),
        "141",
        swap(
            TRAINING,
            "BagelDiffusion.forward_and_sample_previous_step",
            "module(**model_inputs)",
            "module.forward(**model_inputs)",
            None,
        ),
    ),
    # Sums
    mutant(
        "the second sum of the latents is gone",
        ("M8", 23),
        "142",
        swap(MODEL, LAYER, f"latents = latents + {MLP}", f"latents = {MLP}"),
    ),
    mutant(
        "the first sum of the latents is gone",
        ("M8", 23),
        "142",
        swap(MODEL, LAYER, "latents = latents + latents_update", "latents = latents_update"),
    ),
    mutant(
        "the second sum of the text is gone",
        ("M8", 23),
        "142",
        swap(
            MODEL,
            LAYER,
            "context = context + self.mlp(self.post_attention_layernorm(context))",
            "context = self.mlp(self.post_attention_layernorm(context))",
        ),
    ),
    mutant(
        "the normalised latents go on",
        ("M8", 23),
        "142",
        swap(
            MODEL,
            LAYER,
            f"latents = latents + {MLP}",
            "latents = self.post_attention_layernorm_moe_gen(latents)\nlatents = latents + self.mlp_moe_gen(latents)",
        ),
    ),
    mutant(
        "the block of the latents is subtracted",
        ("M8", 23),
        "142",
        swap(MODEL, LAYER, f"latents = latents + {MLP}", f"latents = latents - {MLP}"),
    ),
    # Embeddings
    mutant("the time goes to the text", ("M7",), "146", swap(MODEL, FORWARD, ADDED, f"context = context + {TIME}")),
    mutant(
        "the place goes to the text",
        ("M7",),
        "146",
        swap(
            MODEL,
            FORWARD,
            PLACED,
            "context = context + self.latent_pos_embed(latent_pos_ids)\nlatents = latents.to(context.dtype)",
        ),
    ),
    mutant("the time is a factor", ("M7",), "146", swap(MODEL, FORWARD, ADDED, f"latents = latents * {TIME}")),
    mutant("the time is taken away", ("M7",), "146", swap(MODEL, FORWARD, ADDED, f"latents = latents - {TIME}")),
    mutant(
        "the time in every layer",
        ("M7",),
        "146",
        line(MODEL, FORWARD, ADDED),
        swap(MODEL, FORWARD, LAYERS, f"{ADDED}\n{LAYERS}"),
    ),
    mutant(
        "the time behind the layers",
        ("M7",),
        "146",
        line(MODEL, FORWARD, ADDED),
        swap(
            MODEL,
            FORWARD,
            "return (self.llm2vae(self.norm_moe_gen(latents)),)",
            f"{ADDED}\nreturn (self.llm2vae(self.norm_moe_gen(latents)),)",
        ),
    ),
    # Rotation
    mutant(
        "neighbours are turned by halves",
        ("M8", 23),
        "143",
        swap(MODEL, "apply_rotary", "first, second = x.chunk(2, dim=-1)", "first, second = x[..., ::2], x[..., 1::2]"),
    ),
    mutant(
        "halves are joined as neighbours",
        ("M8", 23),
        "143",
        swap(MODEL, "apply_rotary", TURN, "x * cos + torch.stack((-second, first), dim=-1).flatten(-2) * sin"),
    ),
    mutant(
        "tables of neighbours",
        ("M8", 23),
        "143",
        swap(MODEL, "rotary_tables", TABLE, "angles = angles.repeat_interleave(2, dim=-1)"),
    ),
    mutant(
        "the pair is turned backwards",
        ("M8", 23),
        "143",
        swap(MODEL, "apply_rotary", TURN, "x * cos + torch.cat((second, -first), dim=-1) * sin"),
    ),
    mutant(
        "the turned pair is taken away", ("M8", 23), "143", swap(MODEL, "apply_rotary", TURN, TURN.replace("+", "-"))
    ),
    mutant(
        "sines for cosines",
        ("M8", 23),
        "143",
        swap(MODEL, "apply_rotary", TURN, "x * sin + torch.cat((-second, first), dim=-1) * cos"),
    ),
    mutant(
        "the tables are unpacked crosswise",
        ("M8", 23),
        "143",
        swap(MODEL, "apply_rotary", "cos, sin = tables", "sin, cos = tables"),
    ),
    mutant(
        "one part of the pair has a wrong sign",
        ("M8", 23),
        "143",
        swap(
            MODEL,
            "apply_rotary",
            f"return {TURN}",
            "cos, sin = cos[..., : x.shape[-1] // 2], sin[..., : x.shape[-1] // 2]\n"
            "return torch.cat((first * cos + second * sin, second * cos + first * sin), dim=-1)",
        ),
    ),
    mutant(
        "norms behind the rotation",
        ("M8",),
        "147",
        swap(
            MODEL, ATTENTION, QUERY, "self.q_norm(apply_rotary(q_context.float(), layout.rotary)).to(v_context.dtype)"
        ),
        swap(MODEL, ATTENTION, KEY, "self.k_norm(apply_rotary(k_context.float(), layout.rotary)).to(v_context.dtype)"),
    ),
    mutant(
        "a norm behind the rotation, two lines further",
        ("M8",),
        "147",
        swap(
            MODEL,
            ATTENTION,
            f"k_context = {KEY}",
            "k_context = apply_rotary(k_context.float(), layout.rotary)\nk_context = self.k_norm(k_context).to(v_context.dtype)",
        ),
    ),
    mutant(
        "keys are not rotated",
        ("M8", 23),
        "147",
        swap(MODEL, ATTENTION, KEY, "self.k_norm(k_context.float()).to(v_context.dtype)"),
    ),
    mutant(
        "queries are not rotated",
        ("M8", 23),
        "147",
        swap(MODEL, ATTENTION, QUERY, "self.q_norm(q_context.float()).to(v_context.dtype)"),
    ),
    mutant(
        "values are rotated",
        ("M8", 23),
        "147",
        swap(
            MODEL,
            ATTENTION,
            "v_context = self.v_proj(context).unflatten(-1, heads)",
            "v_context = apply_rotary(self.v_proj(context).unflatten(-1, heads), layout.rotary).to(context.dtype)",
        ),
    ),
    # Numbers from memory
    mutant(
        "the usual base of rotation",
        ("M1", "M8"),
        "144",
        swap(MODEL, "Layout.__init__", "config.rope_theta", "10000.0"),
    ),
    mutant(
        "the usual base of rotation, in the formula",
        ("M1", "M8"),
        "144",
        swap(MODEL, "rotary_tables", "theta**-exponents", "10000.0**-exponents"),
    ),
    mutant(
        "the usual base of rotation, by default",
        ("M1", "M8"),
        "144",
        swap(
            MODEL,
            "Layout.__init__",
            "rotary_tables(positions, config.head_dim, config.rope_theta)",
            "rotary_tables(positions, config.head_dim)",
        ),
        signature(
            MODEL,
            "rotary_tables",
            "def rotary_tables(positions: Tensor, head_dim: int, theta: float = 10000.0) -> tuple[Tensor, Tensor]",
        ),
    ),
    mutant(
        "an epsilon that is taken and not kept",
        ("M1",),
        "144",
        swap(MODEL, "RMSNorm.__init__", "self.eps = eps", "self.eps = 1e-5"),
    ),
    mutant(
        "an epsilon from memory for one of two twins",
        ("M1", "M8"),
        "144",
        swap(
            MODEL,
            "BagelMoTLayer.__init__",
            "self.input_layernorm_moe_gen = RMSNorm(config.hidden_size, config.rms_norm_eps)",
            "self.input_layernorm_moe_gen = RMSNorm(config.hidden_size, 1e-5)",
        ),
    ),
    # Causality
    mutant(
        "text sees what comes behind", ("M8", 8), "145", swap(MODEL, ATTENTION, TEXT, "attend(q_text, k_text, v_text)")
    ),
    mutant(
        "text is said to see everything",
        ("M8",),
        "145",
        swap(MODEL, ATTENTION, TEXT, "attend(q_text, k_text, v_text, causal=False)"),
    ),
    mutant(
        "causality is taken and not handed on",
        ("M8",),
        "145",
        swap(
            MODEL,
            "attend",
            "F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=groups > 1)",
            "F.scaled_dot_product_attention(q, k, v, enable_gqa=groups > 1)",
        ),
    ),
    mutant(
        "markers see only what is before them",
        ("M8",),
        "145",
        swap(
            MODEL,
            ATTENTION,
            "attend(q_context[:, layout.text_length :], k, v, layout.key_mask)",
            "attend(q_context[:, layout.text_length :], k, v, layout.key_mask, causal=True)",
        ),
    ),
    # Features
    mutant(
        "frequencies that end at the longest period",
        ("M7",),
        "139",
        swap(MODEL, "timestep_features", RATES, RATES.replace("half)", "(half - 1))")),
    ),
    mutant(
        "frequencies from the second one on",
        ("M7",),
        "139",
        swap(
            MODEL,
            "timestep_features",
            "torch.arange(half, dtype=torch.float32, device=timestep.device)",
            "torch.arange(1, half + 1, dtype=torch.float32, device=timestep.device)",
        ),
    ),
    mutant(
        "frequencies over all channels",
        ("M7",),
        "139",
        swap(MODEL, "timestep_features", RATES, RATES.replace("/ half)", "/ 256)")),
    ),
    # Names with an adapter
    mutant(
        "matrices of adapters among the weights",
        ("M6", 36),
        "410",
        swap(MODEL, f"{MODULE}.save_pretrained", SAVED, saved(test='"lora" != name')),
    ),
    mutant(
        "the half of an adapter among the weights",
        ("M6", 36),
        "410",
        swap(MODEL, f"{MODULE}.save_pretrained", SAVED, saved(test='".lora_A" not in name')),
    ),
    mutant(
        "no adapted layer is saved",
        ("M6", 36),
        "410",
        swap(
            MODEL, f"{MODULE}.save_pretrained", SAVED, saved(test='".lora_" not in name and ".base_layer" not in name')
        ),
    ),
    mutant(
        "adapted layers saved with two dots",
        ("M6", 36),
        "410",
        swap(MODEL, f"{MODULE}.save_pretrained", SAVED, saved('name.replace("base_layer", "")')),
    ),
    mutant(
        "adapted layers sent as they are",
        (18, 20),
        "410",
        swap(ROLLOUT, "_training_name", NAMED, 'name.rpartition("transformer.")[2]'),
    ),
    mutant(
        "adapted layers sent without their weight",
        (18, 20),
        "410",
        swap(ROLLOUT, "_training_name", NAMED, 'name.removeprefix("transformer.").replace(".base_layer.weight", "")'),
    ),
    # A loop's variable
    mutant(
        "the layer is looked up in backward",
        ("M5", 10),
        "105",
        swap(
            MODEL,
            FORWARD,
            LAYERS,
            "\ndef run(c, z):\n    return layer(c, z, layout)\n\ncontext, latents = self._checkpointed_call(run, context, latents)",
        ),
    ),
]
