"""Loading the checkpoint: from_pretrained, the key remap and its tables."""

from mutants.edit import add, decorate, define, line, swap
from mutants.mutant import MODEL, mutant

MODULE = "BagelForTraining"
LOAD = f"{MODULE}.from_pretrained"
STRICT = "model.load_state_dict(state, strict=True, assign=True)"
CHECK = "check_state(model.state_dict(), state, model_path)"
META = 'with torch.device("meta"):\n    model = cls(config)'
OPEN = "open_checkpoint"
TO_TRAINING = "to_training_key"
TO_CHECKPOINT = "to_checkpoint_key"
KEY_MAP = (
    '(("latent_pos_embed.", "latent_pos_embed."), ("time_embedder.", "time_embedder."), ("llm2vae.", "llm2vae."),'
    ' ("vae2llm.", "vae2llm."), ("language_model.model.", ""))'
)


def loaded(code: str):
    """Return the edits that load without the check of names, in another way."""
    return line(MODEL, LOAD, f"{CHECK}\n{STRICT}", code)


def renamed(old: str, new: str):
    """Return the edit of one entry of the tables."""
    return swap(MODEL, "", old, new)


MUTANTS = [
    mutant("no from_pretrained", ("M6",), "111", define(MODEL, LOAD, "")),
    mutant("from_pretrained without @classmethod", ("M6",), "111 202", decorate(MODEL, LOAD)),
    mutant("from_pretrained that loads nothing", ("M6",), "111 403", line(MODEL, LOAD, f"{CHECK}\n{STRICT}")),
    mutant(
        "keys not renamed",
        ("M6",),
        "111 401 403 405",
        line(MODEL, OPEN, "target = to_training_key(source)", "target = source"),
    ),
    # strict=False
    mutant(
        "strict=False, result thrown away",
        ("M6", 3),
        "109",
        loaded("model.load_state_dict(state, strict=False, assign=True)"),
    ),
    mutant(
        "strict=False, missing only counted",
        (3,),
        "109",
        loaded("""
missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
if missing:
    print(f"{len(missing)} missing keys")
"""),
    ),
    mutant(
        "strict=False, unexpected ones let through",
        (3,),
        "109",
        loaded("""
missing, _ = model.load_state_dict(state, strict=False, assign=True)
if missing:
    raise ValueError(f"missing: {missing}")
"""),
    ),
    mutant(
        "strict=False, missing ones let through",
        (3,),
        "109",
        loaded("""
result = model.load_state_dict(state, strict=False, assign=True)
if result.unexpected_keys:
    raise ValueError(f"unexpected: {result.unexpected_keys}")
"""),
    ),
    mutant(
        "strictness from a variable that is False",
        (3,),
        "109",
        loaded("strict = False\nmodel.load_state_dict(state, strict=strict, assign=True)"),
    ),
    mutant("strict=False by position", (3,), "109", loaded("model.load_state_dict(state, False, True)")),
    mutant(
        "only an assert on a count",
        (3,),
        "109",
        loaded("""
missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
assert len(missing) < 10
"""),
    ),
    # Random weights first
    mutant(
        "built with random weights, then copied",
        (4,),
        "110",
        line(MODEL, LOAD, META, "model = cls(config)"),
        line(MODEL, LOAD, STRICT, "model.load_state_dict(state, strict=True)"),
    ),
    mutant(
        "built on the cpu and copied",
        (4,),
        "110",
        line(MODEL, LOAD, META, 'with torch.device("cpu"):\n    model = cls(config)'),
        line(MODEL, LOAD, STRICT, "model.load_state_dict(state)"),
    ),
    mutant(
        "copied parameter by parameter",
        (4,),
        "110",
        line(MODEL, LOAD, META, "model = cls(config)"),
        line(
            MODEL,
            LOAD,
            STRICT,
            """
with torch.no_grad():
    for name, parameter in model.named_parameters():
        parameter.copy_(state[name])
""",
        ),
    ),
    mutant(
        "built in bf16 and copied",
        (4,),
        "110",
        line(MODEL, LOAD, META, "model = cls(config).to(torch_dtype)"),
        line(MODEL, LOAD, STRICT, "model.load_state_dict(state, strict=True, assign=False)"),
    ),
    # Keys that vanish
    mutant(
        "unknown keys passed over",
        ("M6", 22),
        "405",
        line(
            MODEL,
            TO_TRAINING,
            """
if not fitting:
    raise KeyError(f"checkpoint tensor {name!r} is in neither KEY_MAP nor IGNORED_KEYS of {__name__}")
""",
            "if not fitting:\n    return None",
        ),
    ),
    mutant(
        "keys that the module lacks passed over",
        ("M6", 22),
        "405",
        line(
            MODEL, LOAD, META, f"{META}\nstate = {{name: t for name, t in state.items() if name in model.state_dict()}}"
        ),
    ),
    mutant(
        "errors of the key remap swallowed",
        ("M6", 22),
        "405",
        line(
            MODEL,
            OPEN,
            "target = to_training_key(source)",
            """
try:
    target = to_training_key(source)
except KeyError:
    continue
""",
        ),
    ),
    # Tables
    mutant(
        "rule for a name that no release has",
        (20,),
        "401",
        renamed('("language_model.model.", "")', '("language_model.transformer.", "")'),
    ),
    mutant(
        "one rule too many",
        (20,),
        "401",
        swap(MODEL, "", KEY_MAP, KEY_MAP.replace("(", '(("time_embed.", "time_embedder."), ', 1)),
    ),
    mutant(
        "a source with the wrong end",
        (20,),
        "401",
        renamed('("time_embedder.", "time_embedder.")', '("time_embedder.net.", "time_embedder.mlp.")'),
    ),
    mutant("ignored prefix that no release has", (20,), "401", renamed('"vit_pos_embed."', '"vision_pos_embed."')),
    mutant(
        "rule leads to a parameter that is not there",
        (22, 20),
        "401 403 408",
        renamed('("llm2vae.", "llm2vae.")', '("llm2vae.", "proj_out.")'),
    ),
    mutant(
        "weights of training ignored", (22,), "403", renamed('"connector."', '"language_model.model.norm_moe_gen."')
    ),
    mutant(
        "no rule for a part of the model",
        (22,),
        "403 405",
        renamed('("vae2llm.", "vae2llm.")', '("connector.", "vae2llm.")'),
    ),
    mutant(
        "new scale in the layer",
        (22,),
        "403 121",
        add(MODEL, "BagelMoTLayer.__init__", "self.scale = nn.Parameter(torch.ones(config.hidden_size))"),
        line(
            MODEL,
            "BagelMoTLayer.forward",
            "latents = latents + latents_update",
            "latents = latents + self.scale * latents_update",
        ),
    ),
    mutant(
        "bias that the checkpoint does not have",
        (22,),
        "403",
        swap(
            MODEL,
            "BagelAttention.__init__",
            "nn.Linear(q_size, hidden, bias=False)",
            "nn.Linear(q_size, hidden)",
            times=2,
        ),
    ),
    mutant(
        "a layer more in the time embedding",
        (22,),
        "403",
        swap(
            MODEL,
            "TimestepEmbedder.__init__",
            "nn.Sequential(nn.Linear(256, hidden_size), nn.SiLU(), nn.Linear(hidden_size, hidden_size))",
            "nn.Sequential(nn.Linear(256, hidden_size), nn.SiLU(), nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size))",
        ),
    ),
    mutant(
        "two rules lead to one name",
        (21, 22),
        "404 403",
        renamed('("vae2llm.", "vae2llm.")', '("vae2llm.", "llm2vae.")'),
    ),
    # Back again
    mutant(
        "way back forgets a rule",
        (21,),
        "402",
        swap(
            MODEL,
            TO_CHECKPOINT,
            "sorted(KEY_MAP, key=lambda rule: -len(rule[1]))",
            "sorted(KEY_MAP[:3], key=lambda rule: -len(rule[1]))",
        ),
    ),
    mutant(
        "way back with a table of its own that differs",
        (21,),
        "402",
        add(
            MODEL,
            "",
            """
CHECKPOINT_PREFIXES = (("latent_pos_embed.", "latent_pos_embed."), ("time_embedder.", "time_embed."), ("", "language_model.model."))
""",
        ),
        define(
            MODEL,
            TO_CHECKPOINT,
            '''
def to_checkpoint_key(name: str) -> str:
    """Inverse of :func:`to_training_key`."""
    for source, target in CHECKPOINT_PREFIXES:
        if name.startswith(source):
            return target + name[len(source):]
    raise KeyError(name)
''',
        ),
    ),
    mutant(
        "way back in the order of the table",
        (21,),
        "402 406",
        swap(MODEL, TO_CHECKPOINT, "sorted(KEY_MAP, key=lambda rule: -len(rule[1]))", "reversed(KEY_MAP)"),
    ),
    mutant(
        "renamed with replace",
        (20, 21),
        "407",
        line(
            MODEL,
            TO_TRAINING,
            "return None if target is None else target + name[len(source) :]",
            "return None if target is None else name.replace(source, target)",
        ),
    ),
    mutant(
        "way back with replace",
        (21,),
        "407 402",
        line(MODEL, TO_CHECKPOINT, "return source + name[len(target) :]", "return name.replace(target, source)"),
    ),
]
