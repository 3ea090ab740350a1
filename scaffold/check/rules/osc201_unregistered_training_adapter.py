"""The training adapter is not registered for training, or what is registered is no training adapter.

The engine looks the adapter up by architecture and algorithm. A class without ``@DiffusionModelBase.register(…)`` is
never found; the run stops with the list of the registered ones. A registered class that does not inherit the base
fails at the first hook that it lacks.

    class ToyDiffusion(DiffusionModelBase): …          # no decorator

Instead: ``@DiffusionModelBase.register("OmniToyForConditionalGeneration", algorithm="flow_grpo")``.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.calls import has_unpacking
from scaffold.check.model.package import Package
from scaffold.check.model.registration import may_be_registered, takes_algorithm
from scaffold.check.rule import Hit, Hits

ID = "OSC201"
NAME = "unregistered-training-adapter"
SEVERITY = "error"
CHECKLIST = ("T1",)
HELP = 'decorate the class with @DiffusionModelBase.register("<architecture>", algorithm="<algorithm>")'
_IMAGES = "DiffusionI2IModelBase"
BASES = ("DiffusionModelBase", "DiffusionI2IModelBase")


def check(package: Package) -> Hits:
    """Compare the subclasses of the base with the registrations."""
    registered = package.registered("training")
    for adapter in package.training_adapters:
        if not any(registration.cls == adapter for registration in registered) and adapter.derives_from(*BASES):
            if not (_registered_elsewhere(package) or may_be_registered(adapter)):
                yield Hit(adapter.file, adapter.node, f"{adapter.name} is not registered for training")
    for registration in registered:
        cls = registration.cls
        if cls is not None and cls.derives_from(_IMAGES) and cls.file in package.files:
            own = [one for one in cls.mro if one.file in package.files]
            inherited = [base for one in own for base in one.external if not base.endswith(f".{_IMAGES}")]
            given = cls.method("prepare_condition")
            if not any(one.file is given.file for one in own) if given is not None else not inherited:
                text = f"{cls.name} inherits {_IMAGES} and prepares no condition image"
                yield Hit(cls.file, cls.node, text, "inherit DiffusionModelBase, or write prepare_condition()")
        if registration.architecture is None or registration.algorithm is None:
            lacking = "architecture" if registration.architecture is None else "algorithm"
            asked = lacking == "architecture" or takes_algorithm(package.project, "DiffusionModelBase")
            if asked and not has_unpacking(registration.call):
                yield Hit(registration.file, registration.call, f"register() gets no {lacking}")
        if cls is not None and cls.derives_from(*BASES) is False:
            yield Hit(
                cls.file, cls.node, f"{cls.name} is registered for training, but does not inherit DiffusionModelBase"
            )


def _registered_elsewhere(package: Package) -> bool:
    """Whether ``register(…)`` is called in a way that does not say on which class."""
    return any(registration.cls is None for registration in package.registered("training"))


FAILING = (
    Example(
        "the base for image-to-image",
        training=[
            (" DiffusionModelBase", " DiffusionI2IModelBase, DiffusionModelBase"),
            ("ToyDiffusion(DiffusionModelBase", "«ToyDiffusion»(DiffusionI2IModelBase"),
        ],
    ),
    Example("no heir of the base", training=("ToyDiffusion(DiffusionModelBase)", "«ToyDiffusion»")),
)
PASSING = (
    Example(
        "through a partial",
        training=[
            ("import torch\n", "from functools import partial\n\nimport torch\n"),
            (
                '@DiffusionModelBase.register("OmniToyForConditionalGeneration", algorithm="flow_grpo")\n',
                'for_flow_grpo = partial(DiffusionModelBase.register, algorithm="flow_grpo")\n\n\n'
                '@for_flow_grpo("OmniToyForConditionalGeneration")\n',
            ),
        ],
    ),
    Example(
        "image-to-image",
        training=[
            (" DiffusionModelBase", " DiffusionI2IModelBase, DiffusionModelBase"),
            (
                "DiffusionModelBase):\n",
                "DiffusionI2IModelBase):\n    @classmethod\n    def prepare_condition(cls, micro_batch, latents, step):\n"
                '        return {"image_latents": latents[:, step]}\n'
                "\n",
            ),
        ],
    ),
)
