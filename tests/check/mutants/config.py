"""The training config, and how it reaches the saved folder."""

from mutants.edit import add, decorate, define, drop_argument, line, rename, swap
from mutants.mutant import MODEL, mutant

CONFIG = "BagelTrainingConfig"
SAVE = f"{CONFIG}.save_pretrained"
READ = f"{CONFIG}.from_model_path"

MUTANTS = [
    mutant("no @dataclass", ("M1",), "112", decorate(MODEL, CONFIG)),
    mutant(
        "config with an __init__ of its own",
        ("M1",),
        "112",
        decorate(MODEL, CONFIG),
        add(
            MODEL,
            CONFIG,
            """
            def __init__(self, **values):
                for name, value in values.items():
                    setattr(self, name, value)
            """,
        ),
    ),
    mutant("config without save_pretrained", ("M1", 36), "112 115", define(MODEL, SAVE, "")),
    mutant("save_pretrained called save", ("M1", 36), "112 115", rename(MODEL, CONFIG, "save_pretrained", "save")),
    mutant("from_model_path called from_pretrained", ("M1",), "112", rename(MODEL, "", "from_model_path", "from_json")),
    mutant("from_model_path without @classmethod", ("M1",), "112", decorate(MODEL, READ)),
    mutant(
        "from_model_path only declared",
        ("M1",),
        "112 113",
        define(
            MODEL,
            READ,
            """
            @classmethod
            def from_model_path(cls, model_path: str) -> "BagelTrainingConfig":
                raise NotImplementedError
            """,
        ),
    ),
    mutant(
        "saved sizes nested under a key nobody reads",
        (36,),
        "113",
        swap(
            MODEL,
            SAVE,
            "{_CONFIG_MARK: type(self).__name__, **asdict(self)}",
            '{_CONFIG_MARK: type(self).__name__, "model": asdict(self)}',
        ),
    ),
    mutant(
        "what was saved is never read back",
        ("M1", 36),
        "113",
        line(
            MODEL,
            READ,
            """
            if root.get(_CONFIG_MARK) == cls.__name__:
                return cls(**{field.name: root[field.name] for field in fields(cls)})
            """,
        ),
    ),
    mutant(
        "the mark is not written",
        (36,),
        "113",
        swap(MODEL, SAVE, "{_CONFIG_MARK: type(self).__name__, **asdict(self)}", "asdict(self)"),
    ),
    mutant(
        "only some sizes are saved",
        (36,),
        "113",
        swap(
            MODEL,
            SAVE,
            "{_CONFIG_MARK: type(self).__name__, **asdict(self)}",
            '{_CONFIG_MARK: type(self).__name__, "hidden_size": self.hidden_size, "vocab_size": self.vocab_size}',
        ),
    ),
    mutant(
        "head count never read from the checkpoint",
        ("M1",),
        "114 113",
        drop_argument(MODEL, READ, "cls", "num_key_value_heads"),
    ),
    mutant(
        "base of the rotary frequencies never read from the checkpoint",
        ("M1",),
        "114 113",
        drop_argument(MODEL, READ, "cls", "rope_theta"),
    ),
    mutant(
        "module keeps no config",
        (36,),
        "115",
        line(MODEL, "BagelForTraining.__init__", "self.config = config"),
        swap(MODEL, "BagelForTraining.forward", "self.config.start_of_image_id", "self.start_of_image_id"),
        swap(MODEL, "BagelForTraining.forward", "self.config.end_of_image_id", "self.end_of_image_id"),
        swap(MODEL, "BagelForTraining.forward", "self.config", "self._config"),
        add(
            MODEL,
            "BagelForTraining.__init__",
            """
            self._config = config
            self.start_of_image_id = config.start_of_image_id
            self.end_of_image_id = config.end_of_image_id
            """,
        ),
    ),
    mutant(
        "weights saved without their config",
        (36,),
        "115",
        line(MODEL, "BagelForTraining.save_pretrained", "self._save_config(save_directory)"),
    ),
]
