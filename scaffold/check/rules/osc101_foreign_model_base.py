"""The training module is not a ``NonDiffusersModelBase``.

The trainer treats what ``build_module`` returns as such a module: it injects LoRA through ``add_adapter``, turns on
gradient checkpointing, wraps ``_no_split_modules`` and saves weights and configuration. A plain ``nn.Module`` has none
of this, and the run stops after the checkpoint was loaded on every rank.

    class ToyForTraining(nn.Module): …

Instead: derive it from ``verl_omni.pipelines.non_diffusers_model_base.NonDiffusersModelBase``.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC101"
NAME = "foreign-model-base"
SEVERITY = "error"
CHECKLIST = ("M2",)
APPLIES = Applies(non_diffusers=True)
HELP = "derive it from NonDiffusersModelBase"
BASE = "NonDiffusersModelBase"


def check(package: Package) -> Hits:
    """Look at the ancestors of what each adapter builds."""
    seen = set()
    for adapter in package.training_adapters:
        module = package.built_module(adapter)
        if module is None or module in seen:
            continue
        seen.add(module)
        # A package that names the base and has no subclass of it took another one by mistake.
        other = not _names_base(package) and module.derives_from("ModelMixin", "PreTrainedModel")
        if module.derives_from(BASE) is False and not other:
            yield Hit(module.file, module.node, f"{module.name}, which {adapter.name} builds, is not a {BASE}")


def _names_base(package: Package) -> bool:
    return not package.deriving(BASE) and any(BASE in file.names for file in package.files)


FAILING = (
    Example("a plain module", model=("ToyForTraining(NonDiffusersModelBase", "«ToyForTraining»(nn.Module")),
    Example(
        "through a base of its own",
        model=(
            "ToyForTraining(NonDiffusersModelBase",
            "Backbone(nn.Module):\n    pass\n\n\nclass «ToyForTraining»(Backbone",
        ),
    ),
)
PASSING = (Example("a base that cannot be resolved", model=("(NonDiffusersModelBase", "(make_base()")),)
