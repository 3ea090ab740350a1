"""The configuration is not saved with the weights.

``NonDiffusersModelBase`` saves ``self.config`` beside the weights. A module that keeps its configuration elsewhere, or
overrides ``save_pretrained`` without it, writes checkpoints that nothing can be rebuilt from: the sizes are gone.

    def save_pretrained(self, save_directory, **kwargs):
        save_file(self.state_dict(), …)

Instead: keep it as ``self.config`` and save it in every ``save_pretrained``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.reach import reachable
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC115"
NAME = "unsaved-config"
SEVERITY = "error"
CHECKLIST = ("M1", "pitfall 36")
APPLIES = Applies(non_diffusers=True)


def check(package: Package) -> Hits:
    """Look for ``self.config``, and for the configuration in an overridden ``save_pretrained``."""
    module = package.training_module
    if module is None or not module.derives_from("NonDiffusersModelBase") or not module.resolved:
        return
    start = module.method("__init__")
    if start is not None and start.file in package.files:
        own = [a for a in module.instance_attributes("config") if a.file in package.files]
        elsewhere = module.method("_save_config")
        own_way = elsewhere is not None and elsewhere.file in package.files and not elsewhere.is_abstract
        if not own and module.attribute("config") is None and start.kwarg is None and not own_way:
            text = f"{module.name} does not keep its configuration as self.config, which the base class saves"
            yield Hit(start.file, start.node, text, "assign self.config in __init__")
    written = module.method("_save_config")
    if written is not None and written.file in package.files and written.is_abstract:
        text = f"{module.name}._save_config() writes nothing"
        yield Hit(written.file, written.node, text, "remove it: the base class saves self.config")
    save = module.method("save_pretrained")
    if save is None or save.file not in package.files or save.is_abstract:
        return
    for function in reachable(save, module):
        for call in function.calls:
            text = ast.unparse(call.func)
            given = [*call.args, *(item.value for item in call.keywords)]
            if "config" in text.lower() or text == "super().save_pretrained":
                return
            if any("config" in ast.unparse(value) for value in given):
                return
    text = f"{module.name}.save_pretrained() saves weights without the configuration"
    yield Hit(save.file, save.node, text, "save self.config as well")


_KEEP = "        self.config = config\n"
_PLACE = "    @classmethod\n    def from_pretrained(cls, model_path: str, torch_dtype"
_SAVE = (
    "    def {}(self, save_directory, **kwargs):\n"
    "{}        save_file(self.state_dict(), os.path.join(save_directory, 'model.safetensors'))\n\n"
)
FAILING = (
    Example(
        "kept under another name",
        {
            "model": [
                (
                    "    def __init__(self, config: ToyTrainingConfig):\n        super().__init__()\n" + _KEEP,
                    "    def «__init__»(self, config: ToyTrainingConfig):\n        super().__init__()\n"
                    "        self.sizes = config\n",
                ),
                ("(self.config.start_of_image_id, self.config.end", "(self.sizes.start_of_image_id, self.sizes.end"),
            ]
        },
    ),
    Example(
        "a method that writes nothing",
        {"model": [(_PLACE, "    def «_save_config»(self, save_directory):\n        pass\n\n" + _PLACE)]},
    ),
    Example(
        "an override without it",
        {"model": [(_PLACE, _SAVE.format("«save_pretrained»", "") + _PLACE)]},
    ),
)
PASSING = (
    Example("the base class saves it"),
    Example(
        "the override saves it",
        {"model": [(_PLACE, _SAVE.format("save_pretrained", "        self._save_config(save_directory)\n") + _PLACE)]},
    ),
    Example(
        "the override hands on",
        {
            "model": [
                (_PLACE, _SAVE.format("save_pretrained", "        super().save_pretrained(save_directory)\n") + _PLACE)
            ]
        },
    ),
    Example(
        "kept under another name, and written by its own method",
        {
            "model": [
                ("        self.config = config\n", "        self.sizes = config\n"),
                ("(self.config.start_of_image_id, self.config.end", "(self.sizes.start_of_image_id, self.sizes.end"),
                (
                    _PLACE,
                    "    def _save_config(self, save_directory):\n"
                    "        self.sizes.save_pretrained(save_directory)\n\n" + _PLACE,
                ),
            ]
        },
    ),
    Example("left to diffusers", base="diffusers"),
)
