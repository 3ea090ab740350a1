"""Other ways to make the same mistakes in the training module."""

from mutants.edit import (
    add,
    bases,
    decorate,
    line,
    swap,
)
from mutants.mutant import (
    MODEL,
    mutant,
)

MODULE = "BagelForTraining"
FORWARD = f"{MODULE}.forward"
LOAD = f"{MODULE}.from_pretrained"
ATTENTION = "BagelAttention.forward"
LAYER_LOOP = (
    "for layer in self.layers:\n    context, latents = self._checkpointed_call(layer, context, latents, layout)"
)
LOADED = "check_state(model.state_dict(), state, model_path)\nmodel.load_state_dict(state, strict=True, assign=True)"

MUTANTS = [
    # Module
    mutant(
        "another decorator for the dataclass",
        ("M1",),
        "112",
        decorate(MODEL, "BagelTrainingConfig", "dataclasses_json"),
    ),
    mutant(
        "config as a dictionary",
        ("M1",),
        "112",
        decorate(MODEL, "BagelTrainingConfig"),
        bases(MODEL, "BagelTrainingConfig", "dict"),
    ),
    mutant(
        "an alias of nn.Module as the base",
        ("M2",),
        "101",
        line(
            MODEL,
            "",
            'CHECKPOINT_FILES: tuple[str, ...] = ("ema.safetensors",)',
            'CHECKPOINT_FILES: tuple[str, ...] = ("ema.safetensors",)\nBase = nn.Module',
        ),
        bases(MODEL, MODULE, "Base"),
    ),
    mutant("_no_split_modules set to None", ("M3",), "102 103", swap(MODEL, MODULE, '["BagelMoTLayer"]', "None")),
    mutant("attention not split", ("M3",), "103", swap(MODEL, MODULE, '["BagelMoTLayer"]', '["BagelAttention"]')),
    mutant("a tuple of wrong names", ("M3", 32), "103", swap(MODEL, MODULE, '["BagelMoTLayer"]', '("MoTLayer",)')),
    mutant(
        "checkpointing switched off in __init__",
        ("M4",),
        "104 105",
        add(MODEL, f"{MODULE}.__init__", "self._supports_gradient_checkpointing = False"),
    ),
    mutant(
        "checkpoint_sequential",
        ("M5", 10),
        "105 106 107",
        line(
            MODEL,
            FORWARD,
            LAYER_LOOP,
            """
for layer in self.layers:
    context, latents = torch.utils.checkpoint.checkpoint(layer, context, latents, layout)
""",
        ),
    ),
    mutant(
        "from_pretrained under no strictness at all",
        ("M6", 3),
        "109",
        line(
            MODEL,
            LOAD,
            LOADED,
            """
options = {"strict": False, "assign": True}
model.load_state_dict(state, **options)
""",
        ),
    ),
    mutant(
        "strict=False, a warning for both",
        (3,),
        "109",
        line(
            MODEL,
            LOAD,
            LOADED,
            """
missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
if missing or unexpected:
    import warnings
    warnings.warn(f"missing {missing}, unexpected {unexpected}")
""",
        ),
    ),
    mutant(
        "loading helper with strict=False",
        (3,),
        "109",
        add(MODEL, "", "def _load_into(model, state):\n    model.load_state_dict(state, strict=False, assign=True)"),
        line(MODEL, LOAD, LOADED, "_load_into(model, state)"),
    ),
    mutant(
        "pop of what does not fit",
        (3, 22),
        "405 109",
        line(
            MODEL,
            LOAD,
            LOADED,
            """
for name in list(state):
    if name not in model.state_dict():
        state.pop(name)
model.load_state_dict(state, strict=True, assign=True)
""",
        ),
    ),
    mutant(
        "moved to the device before loading",
        (4,),
        "110",
        line(MODEL, LOAD, 'with torch.device("meta"):\n    model = cls(config)', "model = cls(config).to(torch_dtype)"),
        line(MODEL, LOAD, "model.load_state_dict(state, strict=True, assign=True)", "model.load_state_dict(state)"),
    ),
    mutant(
        "time embedding computed and not added",
        ("M7",),
        "121",
        line(
            MODEL,
            FORWARD,
            "latents = latents + self.time_embedder(features.to(context.dtype))[:, None]",
            "features = features.to(context.dtype)",
        ),
    ),
    mutant(
        "keys of the latents from the text",
        ("M8",),
        "121 127",
        swap(MODEL, ATTENTION, "self.k_proj_moe_gen", "self.k_proj"),
    ),
    mutant(
        "norm of the latents before attention from the text",
        ("M8",),
        "121 127",
        swap(MODEL, "BagelMoTLayer.forward", "self.input_layernorm_moe_gen", "self.input_layernorm"),
    ),
    mutant(
        "boundary tokens by their config, swapped for literals in a helper",
        ("M9",),
        "122 123",
        add(MODEL, "", "def _markers():\n    return 151652, 151653"),
        swap(MODEL, FORWARD, "(self.config.start_of_image_id, self.config.end_of_image_id)", "_markers()"),
    ),
    mutant(
        "velocity in a list of one by a name",
        (39,),
        "108",
        line(
            MODEL,
            FORWARD,
            "return (self.llm2vae(self.norm_moe_gen(latents)),)",
            "out = [self.llm2vae(self.norm_moe_gen(latents))]\nreturn out",
        ),
    ),
    mutant(
        "parentheses without a comma",
        (39,),
        "108",
        line(
            MODEL,
            FORWARD,
            "return (self.llm2vae(self.norm_moe_gen(latents)),)",
            "return (self.llm2vae(self.norm_moe_gen(latents)))",
        ),
    ),
    mutant(
        "numpy on the way",
        (42,),
        "116",
        line(
            MODEL,
            FORWARD,
            "batch, device = hidden_states.shape[0], hidden_states.device",
            "batch, device = hidden_states.shape[0], hidden_states.device\nlevel = timestep.cpu().numpy()",
        ),
    ),
    mutant(
        "float() of a tensor",
        (42,),
        "116",
        line(
            MODEL,
            FORWARD,
            "batch, device = hidden_states.shape[0], hidden_states.device",
            "batch, device = hidden_states.shape[0], hidden_states.device\nlevel = float(timestep.max())",
        ),
    ),
    mutant(
        "if on a tensor",
        (42,),
        "116",
        line(
            MODEL,
            FORWARD,
            "batch, device = hidden_states.shape[0], hidden_states.device",
            "batch, device = hidden_states.shape[0], hidden_states.device\nif (timestep > 1).any():\n    raise ValueError('noise level')",
        ),
    ),
    mutant(
        "masked_select in a layer",
        (42,),
        "116",
        line(
            MODEL,
            "BagelMoTLayer.forward",
            "latents = latents + latents_update",
            "latents = latents + latents_update\nif layout.key_mask is not None:\n    kept = torch.masked_select(context, layout.key_mask[:, : context.shape[1], None])",
        ),
    ),
    mutant(
        "addmm with the weight",
        (34,),
        "120",
        swap(MODEL, "BagelMLP.forward", "self.up_proj(x)", "torch.matmul(x, self.up_proj.weight.T)"),
    ),
    mutant(
        "weight by getattr of a name",
        (34,),
        "120",
        line(
            MODEL,
            ATTENTION,
            "q_latents = self.q_proj_moe_gen(latents).unflatten(-1, heads)",
            "proj = self.q_proj_moe_gen\nq_latents = F.linear(latents, proj.weight, proj.bias).unflatten(-1, heads)",
        ),
    ),
    mutant(
        "timestep as an index",
        (33,),
        "124",
        line(MODEL, "timestep_features", "half = 256 // 2", "half = 256 // 2\ntimestep = timestep.to(torch.long)"),
    ),
    mutant(
        "timestep floored",
        (33,),
        "124",
        line(MODEL, "timestep_features", "half = 256 // 2", "half = 256 // 2\ntimestep = torch.floor(timestep * 1000)"),
    ),
]
