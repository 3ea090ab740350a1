"""The training configuration is no dataclass, or lacks ``save_pretrained`` or ``from_model_path``.

The configuration is saved beside the weights of every checkpoint and read back when training resumes or the result is
used. Without the two methods a saved model cannot be rebuilt; a plain class compares and prints as an address.

    class ToyTrainingConfig:
        def __init__(self, **kwargs): …

Instead: a ``@dataclass`` with ``save_pretrained(save_directory)`` and the classmethod ``from_model_path(model_path)``.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC112"
NAME = "incomplete-training-config"
SEVERITY = "error"
CHECKLIST = ("M1", "pitfall 36")
APPLIES = Applies(non_diffusers=True)
HELP = "make it a @dataclass with save_pretrained() and a classmethod from_model_path()"
METHODS = ("save_pretrained", "from_model_path")


def check(package: Package) -> Hits:
    """Look at the class that the training module is built from."""
    config = package.config_class
    # A base from elsewhere may bring the methods; a builtin brings none of them.
    if config is None or not config.resolved or set(config.external) - {"dict", "object", "builtins.dict"}:
        return
    if not config.is_dataclass:
        yield Hit(config.file, config.node, f"{config.name} is no dataclass")
    lacking = [name for name in METHODS if (method := config.method(name)) is None or method.is_abstract]
    if lacking:
        yield Hit(config.file, config.node, f"{config.name} has no {' and no '.join(f'{name}()' for name in lacking)}")
    reader = config.method("from_model_path")
    if reader is not None and not reader.is_abstract and not {"classmethod", "staticmethod"} & set(reader.decorators):
        yield Hit(reader.file, reader.node, f"{config.name}.from_model_path() is no classmethod", "add @classmethod")


_CLASS = "@dataclass\nclass ToyTrainingConfig:"
FAILING = (
    Example("a plain class", {"model": [(_CLASS, "class «ToyTrainingConfig»:")]}),
    Example("a dictionary", {"model": [(_CLASS, "class «ToyTrainingConfig»(dict):")]}),
    Example(
        "it cannot be saved",
        {"model": [(_CLASS, "@dataclass\nclass «ToyTrainingConfig»:"), ("def save_pretrained(", "def save(")]},
    ),
    Example(
        "it cannot be read",
        {
            "model": [
                (_CLASS, "@dataclass\nclass «ToyTrainingConfig»:"),
                ("def from_model_path(", "def read("),
                ("ToyTrainingConfig.from_model_path(", "ToyTrainingConfig.read("),
            ]
        },
    ),
    Example(
        "reading is only declared",
        {
            "model": [
                (_CLASS, "@dataclass\nclass «ToyTrainingConfig»:"),
                (
                    '        with open(os.path.join(model_path, "config.json")) as file:\n'
                    "            raw = json.load(file)\n"
                    "        return cls(**{field.name: raw[field.name] for field in fields(cls)})\n",
                    "        raise NotImplementedError\n",
                ),
            ]
        },
    ),
    Example(
        "an instance method reads it",
        {"model": [("    @classmethod\n    def from_model_path(cls", "    def «from_model_path»(cls")]},
    ),
)
PASSING = (
    Example("complete"),
    Example("with options", {"model": [("@dataclass\nclass Toy", "@dataclass(kw_only=True)\nclass Toy")]}),
    Example("left to diffusers", base="diffusers"),
)
