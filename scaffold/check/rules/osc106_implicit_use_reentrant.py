"""``torch.utils.checkpoint.checkpoint`` is called without ``use_reentrant``.

The default is being changed from True to False between releases of torch. The reentrant variant drops keyword
arguments, needs an input that requires a gradient, and does not work with FSDP2; which one a run gets should not
depend on the installed release.

    x = checkpoint(layer, x)

Instead: ``checkpoint(layer, x, use_reentrant=False)``, or ``self._checkpointed_call(layer, x)`` of the base class.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import has_unpacking
from scaffold.check.model.package import Package
from scaffold.check.model.python import PythonFile
from scaffold.check.rule import Applies, Hit, Hits
from scaffold.source.syntax import keyword_of

ID = "OSC106"
NAME = "implicit-use-reentrant"
SEVERITY = "warning"
CHECKLIST = ("M5", "pitfall 10")
APPLIES = Applies(resolved=False)
HELP = "give use_reentrant=False"
FIX_SAFETY = "unsafe"
CHECKPOINT = ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential")


def check(package: Package) -> Hits:
    """Look at every call of the function."""
    for file in package.files:
        if b"checkpoint" not in file.data:
            continue
        for call in file.index.nodes(ast.Call):
            if file.qualified(call.func) in CHECKPOINT and keyword_of(call, "use_reentrant") is None:
                if not any(item.arg is None for item in call.keywords):
                    fixable = not has_unpacking(call)
                    yield Hit(
                        file, call.func, "checkpoint() is called without use_reentrant", fixable=fixable, data=call
                    )


def fix(hit: Hit) -> str:
    """Give ``use_reentrant=False``."""
    from scaffold.check.editing import set_argument

    assert isinstance(hit.file, PythonFile)
    return set_argument(hit.file, hit.data, "use_reentrant", "False")


FAILING = (
    Example(
        "imported by name",
        model=[
            ("import Tensor\n", "import Tensor\nfrom torch.utils.checkpoint import checkpoint\n"),
            (
                "self._checkpointed_call(layer, ",
                "«checkpoint»(layer, context, latents, key_mask) if torch.is_grad_enabled() else layer(",
            ),
        ],
    ),
    Example(
        "by its full name",
        model=(
            "self._checkpointed_call(layer, ",
            "«torch.utils.checkpoint.checkpoint»(layer, context, latents, key_mask) if torch.is_grad_enabled() else layer(",
        ),
    ),
)
PASSING = (
    Example(
        "given",
        model=[
            ("import Tensor\n", "import Tensor\nfrom torch.utils.checkpoint import checkpoint\n"),
            (
                "self._checkpointed_call(layer, ",
                "checkpoint(layer, context, latents, key_mask, use_reentrant=False) if torch.is_grad_enabled() else layer(",
            ),
        ],
    ),
)
