"""Small slips where weights are loaded and renamed."""

from mutants.edit import swap
from mutants.mutant import MODEL, Mutant, mutant

MODULE = "BagelForTraining"
LOAD = f"{MODULE}.from_pretrained"


def slip(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant with one expression or one run of statements changed."""
    return mutant(name, items, rules, swap(MODEL, within, old, new))


MUTANTS = [
    # Loading
    slip("type asked for is ignored", ("M6",), "130", LOAD, "return model.to(torch_dtype)", "return model"),
    slip("type of loading written down", ("M6",), "130", LOAD, "model.to(torch_dtype)", "model.to(torch.float32)"),
    slip(
        "tensors kept under the checkpoint's names",
        ("M6", 20),
        "401 403 405 109",
        "open_checkpoint",
        "state[target] = file.get_tensor(source)",
        "state[source] = file.get_tensor(source)",
    ),
    slip(
        "meta tensors never replaced",
        ("M6", 4),
        "110",
        LOAD,
        "model.load_state_dict(state, strict=True, assign=True)",
        "model.load_state_dict(state, strict=True)",
    ),
    slip(
        "loads before it compares, and not strictly",
        (3,),
        "109",
        LOAD,
        "check_state(model.state_dict(), state, model_path)\nmodel.load_state_dict(state, strict=True, assign=True)",
        "model.load_state_dict(state, False, True)",
    ),
    slip(
        "strict as a name that is false",
        (3,),
        "109",
        LOAD,
        "check_state(model.state_dict(), state, model_path)\nmodel.load_state_dict(state, strict=True, assign=True)",
        "strict = False\nmodel.load_state_dict(state, strict=strict, assign=True)",
    ),
    slip(
        "loading errors swallowed",
        (3,),
        "109 405",
        LOAD,
        "model.load_state_dict(state, strict=True, assign=True)",
        "try:\n    model.load_state_dict(state, strict=True, assign=True)\nexcept RuntimeError:\n    model.load_state_dict(state, strict=False, assign=True)",
    ),
    slip(
        "checkpoint errors swallowed",
        (3,),
        "109 405",
        LOAD,
        "check_state(model.state_dict(), state, model_path)\nmodel.load_state_dict(state, strict=True, assign=True)",
        "try:\n    model.load_state_dict(state, strict=True, assign=True)\nexcept RuntimeError as error:\n    print(error)",
    ),
    slip(
        "module returned is another one",
        ("M6",),
        "111 110",
        LOAD,
        "return model.to(torch_dtype)",
        "return cls(config).to(torch_dtype)",
    ),
    slip(
        "checkpoint file under another name",
        ("M6",),
        "131 403 401",
        "",
        'CHECKPOINT_FILES: tuple[str, ...] = ("ema.safetensors",)',
        'CHECKPOINT_FILES: tuple[str, ...] = ("model.safetensors",)',
    ),
    slip("loads from a folder that does not matter", ("M6",), "111 131", LOAD, "open_checkpoint(model_path)", "{}"),
    slip(
        "rename rule without its dot",
        (20, 21, "M6"),
        "401 402 403 404 405 407 408",
        "",
        '("time_embedder.", "time_embedder.")',
        '("time_embedder", "time_embedder")',
    ),
    slip(
        "rename rule with a misspelt source",
        (20, "M6"),
        "401 403 408",
        "",
        '("llm2vae.", "llm2vae.")',
        '("llm2va.", "llm2vae.")',
    ),
    slip(
        "rename rule with a misspelt target",
        (20, 22, "M6"),
        "401 403 408",
        "",
        '("llm2vae.", "llm2vae.")',
        '("llm2vae.", "llm_to_vae.")',
    ),
    slip(
        "rename rule gone",
        (22, "M6"),
        "403 405 408",
        "",
        '(("latent_pos_embed.", "latent_pos_embed."), ("time_embedder.", "time_embedder."), ("llm2vae.", "llm2vae."), ("vae2llm.", "vae2llm."), ("language_model.model.", ""))',
        '(("latent_pos_embed.", "latent_pos_embed."), ("time_embedder.", "time_embedder."), ("vae2llm.", "vae2llm."), ("language_model.model.", ""))',
    ),
    slip(
        "two rename rules exchanged",
        (20, "M6"),
        "401 402 403 404 408",
        "",
        '("vae2llm.", "vae2llm.")',
        '("vae2llm.", "llm2vae.")',
    ),
    slip(
        "inner prefix too short",
        (20, 22),
        "401 403 408",
        "",
        '("language_model.model.", "")',
        '("language_model.", "")',
    ),
    slip(
        "inverse takes the source's length",
        (21,),
        "402",
        "to_checkpoint_key",
        "source + name[len(target):]",
        "source + name[len(source):]",
    ),
    slip(
        "inverse gives the name back",
        (21,),
        "402",
        "to_checkpoint_key",
        "return source + name[len(target):]",
        "return name",
    ),
    slip(
        "inverse looks at the sources",
        (21,),
        "402 409",
        "to_checkpoint_key",
        "name.startswith(target)",
        "name.startswith(source)",
    ),
    slip(
        "unknown name passed through",
        (21, 22),
        "402 405",
        "to_checkpoint_key",
        'raise KeyError(f"no rule of KEY_MAP leads to parameter {name!r}")',
        "return name",
    ),
    slip(
        "unknown key ignored",
        (3, 22),
        "405",
        "to_training_key",
        'raise KeyError(f"checkpoint tensor {name!r} is in neither KEY_MAP nor IGNORED_KEYS of {__name__}")',
        "return None",
    ),
    slip(
        "second tensor for a parameter wins",
        (22, "M6"),
        "404 405",
        "open_checkpoint",
        """
if target in state:
    raise ValueError(f"{path}: {source!r} is the second tensor that leads to parameter {target!r}")
""",
        "if target in state:\n    continue",
    ),
]
