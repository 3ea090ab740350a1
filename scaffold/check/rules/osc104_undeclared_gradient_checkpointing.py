"""The training module does not declare ``_supports_gradient_checkpointing = True``.

The engine turns gradient checkpointing on through ``enable_gradient_checkpointing()``, and the base class refuses
that unless the class says that it supports it. A ``forward`` that goes through ``_checkpointed_call`` without the
declaration can never save memory, and a launch script that asks for checkpointing stops.

    class ToyForTraining(NonDiffusersModelBase):
        _supports_gradient_checkpointing = False   # forward() uses self._checkpointed_call

Instead: ``_supports_gradient_checkpointing = True``, with every layer called through ``self._checkpointed_call``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.package import Package
from scaffold.check.model.python import Attribute, PythonFile
from scaffold.check.rule import Applies, Hit, Hits
from scaffold.source.values import UNKNOWN

ID = "OSC104"
NAME = "undeclared-gradient-checkpointing"
SEVERITY = "error"
CHECKLIST = ("M4",)
APPLIES = Applies(non_diffusers=True)
HELP = "set `_supports_gradient_checkpointing = True` and call every layer through `self._checkpointed_call`"
FIX_SAFETY = "safe"
FLAG = "_supports_gradient_checkpointing"


def check(package: Package) -> Hits:
    """Look at the flag of the module that is trained."""
    module = package.training_module
    if module is None or not module.derives_from("NonDiffusersModelBase"):
        return
    used = any(attribute_name(call) == "_checkpointed_call" for f in package.forward_functions for call in f.calls)
    # The base class of a checkout says False; what counts is what the package says.
    flag = next(
        (
            cls.own_attributes[FLAG][-1]
            for cls in module.mro
            if cls.file in package.files and FLAG in cls.own_attributes
        ),
        None,
    )
    if flag is None:
        if not module.resolved:
            return
        yield Hit(module.file, module.node, f"{module.name} does not declare {FLAG}", fixable=used, data=module.node)
        return
    for later in module.instance_attributes(FLAG):
        if later.value is not None and later.file.value(later.value) is False and later.file in package.files:
            text = f"{FLAG} is switched off where the module is built"
            yield Hit(later.file, later.value, text, fixable=False)
    if flag.value is None and _only_annotated(flag):
        text = f"{FLAG} is annotated and not set, so the base class's False stays"
        yield Hit(flag.file, flag.node, text, fixable=used and flag.file is module.file, data=module.node)
        return
    value = UNKNOWN if flag.value is None else flag.file.value(flag.value)
    if value is not UNKNOWN and not value and flag.value is not None:
        what = "but its forward() goes through _checkpointed_call" if used else "so its layers keep all activations"
        yield Hit(
            flag.file,
            flag.value,
            f"{FLAG} is {value!r}, {what}",
            fixable=used and flag.file is module.file,
            data=module.node,
        )


def _only_annotated(flag: Attribute) -> bool:
    """Whether a class attribute is ``name: type``, which assigns nothing."""
    parent = flag.file.index.parent(flag.node)
    return isinstance(parent, ast.AnnAssign) and parent.value is None


def fix(hit: Hit) -> str | None:
    """Declare it; only where ``forward`` does go through ``_checkpointed_call``."""
    from scaffold.check.editing import set_class_attribute

    assert isinstance(hit.file, PythonFile)
    assert isinstance(hit.data, ast.ClassDef)
    return set_class_attribute(hit.file, hit.data, FLAG, "True")


FAILING = (
    Example(
        "annotated, not set",
        model=("_supports_gradient_checkpointing = True", "«_supports_gradient_checkpointing»: bool"),
    ),
    Example("None", model=("_supports_gradient_checkpointing = True", "_supports_gradient_checkpointing = «None»")),
)
PASSING = (
    Example("annotated and set", model=("_supports_gradient_checkpointing", "_supports_gradient_checkpointing: bool")),
)
