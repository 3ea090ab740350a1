"""The training module does not say in ``_no_split_modules`` which class is its layer.

FSDP wraps the classes named there one by one. Without them the whole model is one unit: every rank gathers all
parameters at once, and a model that fits when sharded does not fit any more.

    class ToyForTraining(NonDiffusersModelBase):
        _no_split_modules = []

Instead: ``_no_split_modules = ["ToyLayer"]``, the class of the elements of the layer list.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC102"
NAME = "missing-no-split-modules"
SEVERITY = "error"
CHECKLIST = ("M3",)
APPLIES = Applies(non_diffusers=True)
HELP = 'name the class of the layers: _no_split_modules = ["…"]'
NO_SPLIT = "_no_split_modules"


def check(package: Package) -> Hits:
    """Look for a list with names in the module that is trained; what the base class says is only a default."""
    module = package.training_module
    if module is None or not module.derives_from("NonDiffusersModelBase"):
        return
    found = next(
        (
            c.own_attributes[NO_SPLIT][-1]
            for c in module.mro
            if c.file in package.files and NO_SPLIT in c.own_attributes
        ),
        None,
    )
    if found is None:
        if module.resolved and not module.instance_attributes(NO_SPLIT):
            yield Hit(module.file, module.node, f"{module.name} does not name its layers in {NO_SPLIT}")
    elif found.value is None:
        parent = found.file.index.parent(found.node)
        if isinstance(parent, ast.AnnAssign) and not module.instance_attributes(NO_SPLIT):
            yield Hit(found.file, found.node, f"{NO_SPLIT} of {module.name} is annotated and not set")
    else:
        value = found.file.value(found.value)
        if value is None or (isinstance(value, (list, tuple, set)) and not value):
            yield Hit(found.file, found.value, f"{NO_SPLIT} of {module.name} names no class")
        elif isinstance(value, str):
            yield Hit(
                found.file, found.value, f"{NO_SPLIT} of {module.name} is one string, and its letters are the names"
            )
        elif isinstance(found.value, (ast.List, ast.Tuple, ast.Set)):
            for item in found.value.elts:
                if found.file.project.class_of(found.file, item) is not None:
                    yield Hit(found.file, item, f"{NO_SPLIT} of {module.name} holds a class, not its name")


FAILING = (
    Example("annotated, not set", model=('_no_split_modules = ["ToyLayer"', "«_no_split_modules»: list[str")),
    Example("a string", model=('["ToyLayer"]', '«"ToyLayer"»')),
    Example("empty", model=('["ToyLayer"]', "«[]»")),
)
PASSING = (
    Example("as a tuple", model=('["ToyLayer"]', '("ToyLayer",)')),
    Example("computed", model=('"ToyLayer"', "ToyLayer.__name__")),
)
