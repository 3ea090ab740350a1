"""Mistakes of the training module behind one indirection: a helper, a loop over names, a default, another spelling."""

from mutants.edit import add, swap
from mutants.mutant import MODEL, Mutant, mutant

CONFIG = "BagelTrainingConfig"
MODULE = "BagelForTraining"
ATTENTION = "BagelAttention"
CALL = "context, latents = self._checkpointed_call(layer, context, latents, layout)"
IMPORT = "from dataclasses import asdict, dataclass, fields"
BASE = "from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase"
LATENTS = """
q_latents = self.q_proj_moe_gen(latents).unflatten(-1, heads)
k_latents = self.k_proj_moe_gen(latents).unflatten(-1, heads)
v_latents = self.v_proj_moe_gen(latents).unflatten(-1, heads)
"""
LISTED = """
q_latents, k_latents, v_latents = (
    projection(latents).unflatten(-1, heads)
    for projection in (self.q_proj_moe_gen, self.v_proj_moe_gen, self.k_proj_moe_gen)
)
"""
PICKED = """
def _project(self, x, heads, suffix=""):
    return [getattr(self, f"{name}_proj")(x).unflatten(-1, heads) for name in "qkv"]
"""


def slip(name: str, items: tuple, rules: str, within: str, old: str, new: str) -> Mutant:
    """Return a mutant with one expression or one run of statements changed."""
    return mutant(name, items, rules, swap(MODEL, within, old, new))


MUTANTS = [
    slip(
        "sizes saved as text",
        ("M1", 36),
        "113",
        f"{CONFIG}.save_pretrained",
        "{_CONFIG_MARK: type(self).__name__, **asdict(self)}",
        "{_CONFIG_MARK: type(self).__name__, **{name: str(value) for name, value in asdict(self).items()}}",
    ),
    slip(
        "sizes saved by f-string",
        ("M1", 36),
        "113",
        f"{CONFIG}.save_pretrained",
        "{_CONFIG_MARK: type(self).__name__, **asdict(self)}",
        '{_CONFIG_MARK: type(self).__name__, **{name: f"{value}" for name, value in asdict(self).items()}}',
    ),
    slip(
        "sizes read back from the class",
        ("M1", 36),
        "113",
        f"{CONFIG}.from_model_path",
        "{field.name: root[field.name] for field in fields(cls)}",
        "{field.name: getattr(cls, field.name) for field in fields(cls)}",
    ),
    slip(
        "sizes read back from the fields",
        ("M1", 36),
        "113",
        f"{CONFIG}.from_model_path",
        "{field.name: root[field.name] for field in fields(cls)}",
        "{field.name: field.default for field in fields(cls)}",
    ),
    mutant(
        "a size that the constructor does not take",
        ("M1",),
        "112",
        swap(MODEL, "", IMPORT, "from dataclasses import asdict, dataclass, field, fields"),
        swap(MODEL, CONFIG, "latent_channel: int = 16", "latent_channel: int = field(default=16, init=False)"),
    ),
    slip(
        "tokens of a side instead of a square",
        ("M1", 22),
        "403",
        f"{CONFIG}.patch_latent_dim",
        "self.latent_patch_size**2 * self.latent_channel",
        "self.latent_patch_size * self.latent_channel",
    ),
    mutant(
        "base for type checkers",
        ("M2",),
        "101",
        swap(
            MODEL,
            "",
            BASE,
            f"import typing\nif typing.TYPE_CHECKING:\n    {BASE}\nelse:\n    NonDiffusersModelBase = nn.Module",
        ),
    ),
    mutant(
        "reentrant by a partial",
        ("M5", 10),
        "106",
        swap(MODEL, "", "import json", "import functools\nimport json"),
        swap(
            MODEL,
            f"{MODULE}.forward",
            "self._checkpointed_call(layer, context, latents, layout)",
            "functools.partial(self._checkpointed_call, use_reentrant=True)(layer, context, latents, layout)",
        ),
    ),
    slip(
        "tuple of a tensor",
        ("M5", 39),
        "108",
        f"{MODULE}.forward",
        "(self.llm2vae(self.norm_moe_gen(latents)),)",
        "tuple(self.llm2vae(self.norm_moe_gen(latents)))",
    ),
    slip(
        "list of a tensor",
        ("M5", 39),
        "108",
        f"{MODULE}.forward",
        "(self.llm2vae(self.norm_moe_gen(latents)),)",
        "list(self.llm2vae(self.norm_moe_gen(latents)).float())",
    ),
    slip(
        "dead prefix in a generated table",
        ("M6", 20),
        "401 403",
        "",
        '(("latent_pos_embed.", "latent_pos_embed."), ("time_embedder.", "time_embedder."), ("llm2vae.", "llm2vae."),'
        ' ("vae2llm.", "vae2llm."), ("language_model.model.", ""))',
        '(*((f"{n}.", f"{n}.") for n in ("latent_pos_embed", "time_embedder", "llm2vae", "vae2llm")),'
        ' ("model.language_model.", ""))',
    ),
    mutant(
        "frequencies in the state",
        ("M6", 22),
        "403",
        add(MODEL, f"{MODULE}.__init__", 'self.register_buffer("inv_freq", torch.ones(64))'),
    ),
    mutant(
        "frequencies of a layer in the state",
        ("M6", 22),
        "403",
        add(MODEL, f"{ATTENTION}.__init__", 'self.register_buffer("inv_freq", torch.ones(64), persistent=True)'),
    ),
    slip(
        "adapter's names saved",
        ("M6", 21),
        "409",
        f"{MODULE}.save_pretrained",
        'name.replace(".base_layer.", ".")',
        "name",
    ),
    mutant(
        "biases by a helper's default",
        ("M6", 22),
        "403",
        swap(MODEL, "", BASE, BASE + "\n\ndef _linear(a, b, bias=True):\n    return nn.Linear(a, b, bias=bias)\n"),
        swap(
            MODEL,
            "BagelMLP.__init__",
            "nn.Linear(config.intermediate_size, config.hidden_size, bias=False)",
            "_linear(config.intermediate_size, config.hidden_size)",
        ),
    ),
    slip(
        "sines first in a loop",
        ("M7",),
        "139",
        "timestep_features",
        "torch.cat((angles.cos(), angles.sin()), dim=-1)",
        "torch.cat([wave(angles) for wave in (torch.sin, torch.cos)], dim=-1)",
    ),
    mutant(
        "ending that the helper does not read",
        ("M8",),
        "135",
        add(MODEL, ATTENTION, PICKED),
        swap(
            MODEL,
            f"{ATTENTION}.forward",
            LATENTS,
            'q_latents, k_latents, v_latents = self._project(latents, heads, "_moe_gen")',
        ),
    ),
    slip("keys and values listed in another order", ("M8",), "127", f"{ATTENTION}.forward", LATENTS, LISTED),
    slip(
        "key heads tiled", ("M8",), "129", "attend", "x.repeat_interleave(groups, dim=1)", "x.repeat(1, groups, 1, 1)"
    ),
    slip(
        "marker of the class",
        ("M9",),
        "123",
        f"{MODULE}.forward",
        "self.config.end_of_image_id",
        f"{CONFIG}.end_of_image_id",
    ),
    slip(
        "markers in the latents' dtype",
        ("M9",),
        "122",
        f"{MODULE}.forward",
        "torch.full((batch, 1), marker, device=device)",
        "hidden_states.new_full((batch, 1), marker).long()",
    ),
    slip(
        "texts counted together",
        (14,),
        "118",
        "Layout.__init__",
        "text_mask.sum(dim=1, keepdim=True, dtype=torch.float32)",
        "torch.count_nonzero(text_mask).float().reshape(1, 1)",
    ),
    slip(
        "texts summed together",
        (14,),
        "118",
        "Layout.__init__",
        "text_mask.sum(dim=1, keepdim=True, dtype=torch.float32)",
        "text_mask.sum().float().reshape(1, 1)",
    ),
]
