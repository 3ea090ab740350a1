"""Small slips in the configuration and in what the module declares: a wrong name, default or place."""

from mutants.edit import add, decorate, line, rename, swap
from mutants.mutant import MODEL, Mutant, mutant

MODULE = "BagelForTraining"
CONFIG = "BagelTrainingConfig"
FORWARD = f"{MODULE}.forward"
SAVE = f"{MODULE}.save_pretrained"
READ = f"{CONFIG}.from_model_path"
WRITE = f"{CONFIG}.save_pretrained"
CALL = "context, latents = self._checkpointed_call(layer, context, latents, layout)"
DUMP = "json.dump({_CONFIG_MARK: type(self).__name__, **asdict(self)}, file, indent=2, sort_keys=True)"
READ_BACK = "return cls(**{field.name: root[field.name] for field in fields(cls)})"


def slip(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant with one expression or one run of statements changed."""
    return mutant(name, items, rules, swap(MODEL, within, old, new))


MUTANTS = [
    # Configuration
    slip("config saved under another file's name", ("M1", 36), "113", WRITE, '"config.json"', '"training_config.json"'),
    slip("config of defaults", ("M1", 36), "113 114", READ, READ_BACK, "return cls()"),
    mutant("config method misspelt", ("M1",), "112", rename(MODEL, CONFIG, "from_model_path", "from_model_dir")),
    mutant("config written by another name", ("M1",), "112", rename(MODEL, CONFIG, "save_pretrained", "save")),
    mutant("config reader without classmethod", ("M1",), "112", decorate(MODEL, READ)),
    mutant("frozen config that loading changes", ("M1",), "112", decorate(MODEL, CONFIG, "dataclass(frozen=True)")),
    slip("config never written", ("M1", 36), "112 113 115", WRITE, DUMP, "json.dumps(asdict(self))"),
    mutant(
        "one field left out of what is saved",
        ("M1", 36),
        "113",
        line(
            MODEL,
            WRITE,
            f'with open(os.path.join(save_directory, "config.json"), "w", encoding="utf-8") as file:\n    {DUMP}',
            'saved = asdict(self)\nsaved.pop("rope_theta")\n'
            'with open(os.path.join(save_directory, "config.json"), "w", encoding="utf-8") as file:\n'
            "    json.dump({_CONFIG_MARK: type(self).__name__, **saved}, file)",
        ),
    ),
    slip(
        "a size read under another size's key",
        ("M1", 36),
        "132",
        READ,
        '_required(text, "num_key_value_heads", "llm_config.json")',
        '_required(text, "num_attention_heads", "llm_config.json")',
    ),
    slip(
        "two sizes exchanged",
        ("M1", 36),
        "132",
        READ,
        '_required(text, "hidden_size", "llm_config.json")',
        '_required(text, "intermediate_size", "llm_config.json")',
    ),
    slip(
        "a field without a type",
        ("M1",),
        "112 113 114",
        CONFIG,
        "rope_theta: float = 1000000.0",
        "rope_theta = 1000000.0",
    ),
    slip(
        "reads a field that the class does not have",
        ("M1",),
        "112 113 114",
        CONFIG,
        "max_latent_size: int = 64",
        "max_latents: int = 64",
    ),
    slip(
        "config not kept by the module", (36,), "115", f"{MODULE}.__init__", "self.config = config", "self.cfg = config"
    ),
    slip("config not saved with the weights", (36,), "115", SAVE, "self._save_config(save_directory)"),
    # Base, splitting, checkpointing
    slip("base class not initialised", ("M2",), "133", f"{MODULE}.__init__", "super().__init__()"),
    slip(
        "splits under a misspelt name",
        ("M3",),
        "102",
        MODULE,
        '_no_split_modules = ["BagelMoTLayer"]',
        '_no_split_module = ["BagelMoTLayer"]',
    ),
    slip("splits at a class, not a name", ("M3", 32), "102 103", MODULE, '["BagelMoTLayer"]', "[BagelMoTLayer]"),
    slip("splits at one string", ("M3",), "102 103", MODULE, '["BagelMoTLayer"]', '"BagelMoTLayer"'),
    slip(
        "splits at the attention as well",
        ("M3",),
        "103",
        MODULE,
        '["BagelMoTLayer"]',
        '["BagelMoTLayer", "BagelDecoderLayer"]',
    ),
    slip("splits at the module itself", ("M3",), "103", MODULE, '["BagelMoTLayer"]', '["BagelForTraining"]'),
    slip("splits at nothing", ("M3",), "102", MODULE, '["BagelMoTLayer"]', "[]"),
    mutant(
        "layer class renamed, the list not",
        ("M3", 32),
        "103",
        rename(MODEL, f"{MODULE}.__init__", "BagelMoTLayer", "BagelMoTBlock"),
        add(MODEL, "", "class BagelMoTBlock(BagelMoTLayer):\n    pass"),
    ),
    slip(
        "checkpointing flag misspelt",
        ("M4", 10),
        "104 105",
        MODULE,
        "_supports_gradient_checkpointing = True",
        "_supports_gradient_checkpoint = True",
    ),
    slip(
        "checkpointing flag is None",
        ("M4", 10),
        "104",
        MODULE,
        "_supports_gradient_checkpointing = True",
        "_supports_gradient_checkpointing = None",
    ),
    slip(
        "checkpointing flag without underscore",
        ("M4", 10),
        "104",
        MODULE,
        "_supports_gradient_checkpointing = True",
        "supports_gradient_checkpointing = True",
    ),
    slip(
        "layers called by themselves",
        ("M5", 10),
        "105",
        FORWARD,
        "self._checkpointed_call(layer, context, latents, layout)",
        "layer(context, latents, layout)",
    ),
    slip(
        "checkpointing only outside of training",
        ("M5", 10),
        "105 107",
        FORWARD,
        CALL,
        f"if self.training:\n    context, latents = layer(context, latents, layout)\nelse:\n    {CALL}",
    ),
    slip(
        "only some layers checkpointed",
        ("M5", 10),
        "105",
        FORWARD,
        f"for layer in self.layers:\n    {CALL}",
        f"for layer in self.layers[:-1]:\n    {CALL}\ncontext, latents = self.layers[-1](context, latents, layout)",
    ),
    slip("last layer left out", ("M5", "M7"), "105 121 129", FORWARD, "self.layers", "self.layers[:-1]"),
    slip(
        "streams exchanged when a layer is called",
        ("M5", "M8"),
        "129 127",
        FORWARD,
        "self._checkpointed_call(layer, context, latents, layout)",
        "self._checkpointed_call(layer, latents, context, layout)",
    ),
    slip(
        "streams exchanged when a layer answers",
        ("M5", "M8"),
        "129 127",
        FORWARD,
        CALL,
        "latents, context = self._checkpointed_call(layer, context, latents, layout)",
    ),
    slip(
        "result of a layer dropped",
        ("M5",),
        "134 105",
        FORWARD,
        CALL,
        "self._checkpointed_call(layer, context, latents, layout)",
    ),
    slip(
        "checkpointed call without the layer",
        ("M5",),
        "105",
        FORWARD,
        "self._checkpointed_call(layer, context, latents, layout)",
        "self._checkpointed_call(context, latents, layout)",
    ),
    slip(
        "last layer's class checkpointed",
        ("M5", 10),
        "105 106 107",
        FORWARD,
        "self._checkpointed_call(layer, context, latents, layout)",
        "torch.utils.checkpoint.checkpoint(layer, context, latents, layout, use_reentrant=True)",
    ),
]
