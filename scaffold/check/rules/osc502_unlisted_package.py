"""The package is not, or only in part, listed in ``verl_omni/pipelines/__init__.py``.

Importing ``verl_omni.pipelines`` is what runs the ``register`` decorators. A package needs three edits there: its
name in ``from . import (…)``, ``from .package import *``, and its ``__all__`` added. One that is missing there does
not exist for the trainer, which says that the architecture is unknown.

Instead: make the three edits; ``--fix`` does.
"""

from __future__ import annotations

from scaffold.check.example import FILES, Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.model.patch import PATCH
from scaffold.check.model.project import REGISTRY
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC502"
NAME = "unlisted-package"
SEVERITY = "error"
CHECKLIST = ("W2", "pitfall 25")
APPLIES = Applies(diffusion=None, resolved=False)
HELP = f"add the name, the star import and the line for __all__ to {REGISTRY}"
FIX_SAFETY = "safe"


def check(package: Package) -> Hits:
    """Look for the three edits."""
    registry = package.project.registry
    if registry is None and package.project.rendered:
        # What `new` wrote has a patch, and a package that is new has to be in it.
        text = f"the patch beside the package does not edit {REGISTRY}"
        patch = package.project.source(PATCH)
        yield Hit(patch or package.init or package.files[0], Span(1, 1, 1, 1), text, fixable=False)
    if registry is None or not registry.known:
        return
    if package.name in registry.replaced:
        text = f"__all__ is assigned anew here, and the names of all packages before {package.name} are lost"
        place = registry.file.span_of_line(registry.replaced[package.name])
        yield Hit(registry.file, place, text, f"write __all__ += list({package.name}.__all__)", fixable=False)
    missing = registry.missing(package.name)
    if not missing:
        return
    # Of a rendered tree the patch is what has to change, of a checkout the registry, which all packages share.
    partial = registry.file.partial
    file = registry.file if partial else package.init or package.files[0]
    what = " and ".join([", ".join(missing[:-1]), missing[-1]] if len(missing) > 1 else missing)
    text = f"{REGISTRY} lacks {what}"
    yield Hit(file, Span(1, 1, 1, 1), text, fixable=not partial, data=(registry.file, package.name))


def fix(hit: Hit) -> dict[str, str]:
    """Make the edits that are missing."""
    from scaffold.plan.hooks import add_package

    file, name = hit.data
    return {file.path: add_package(file.text, name)}


_INIT = "from .diffusers_training_adapter import ToyDiffusion\n"
_MARKED = [(_INIT, "«»" + _INIT)]
_OTHER = """\
from . import toy_flow_grpo
from verl_omni.pipelines.toy_flow_grpo import *

__all__ = [*toy_flow_grpo.__all__]
"""
_PATCH = """\
--- a/verl_omni/pipelines/__init__.py
+++ b/verl_omni/pipelines/__init__.py
@@ -1,2 +1,4 @@
 from . import (
+    toy_flow_grpo,
     other,
 )
+from .toy_flow_grpo import *
@@ -4,1 +6,2 @@
 __all__ += list(other.__all__)
{}
"""
FAILING = (
    Example("not listed", {"registry": "from . import other\n\n__all__ = []\n", "init": _MARKED}),
    Example(
        "the other packages' names replaced",
        {
            "registry": "from . import other, toy_flow_grpo\nfrom .other import *\nfrom .toy_flow_grpo import *\n\n"
            "__all__ = []\n__all__ += other.__all__\n«__all__ = [*toy_flow_grpo.__all__]»\n",
        },
    ),
    Example(
        "the other packages' names replaced by a patch",
        {"registry": None, "verl_omni.patch": _PATCH.format("+«»__all__ = list(toy_flow_grpo.__all__)")},
    ),
    Example(
        "no star import", {"registry": [("from .toy_flow_grpo import *  # noqa: F401, F403\n", "")], "init": _MARKED}
    ),
    Example("not in __all__", {"registry": [("__all__ += list(toy_flow_grpo.__all__)\n", "")], "init": _MARKED}),
    Example(
        "no edit in the patch of a rendered tree",
        {
            "registry": None,
            "verl_omni.patch": "«»--- a/docs/index.md\n+++ b/docs/index.md\n@@ -1,1 +1,2 @@\n one\n+two\n",
        },
    ),
    Example(
        "one edit is missing in the patch of a rendered tree",
        {
            "registry": None,
            "verl_omni.patch": "--- a/verl_omni/pipelines/__init__.py\n+++ b/verl_omni/pipelines/__init__.py\n"
            "@@ -1,2 +1,3 @@\n «»from . import (\n+    toy_flow_grpo,\n     other,\n"
            "@@ -4,1 +5,2 @@\n __all__ = []\n+__all__ += list(toy_flow_grpo.__all__)\n",
        },
    ),
)
PASSING = (
    Example(
        "a registry of star imports",
        {"registry": "from .toy_flow_grpo import *  # noqa: F401, F403\n\n__all__ = list(toy_flow_grpo.__all__)\n"},
    ),
    Example(
        "replaced by a list that holds the others",
        {
            "registry": "from . import other, toy_flow_grpo\nfrom .other import *\nfrom .toy_flow_grpo import *\n\n"
            "__all__ = list(other.__all__)\n__all__ = [*__all__, *toy_flow_grpo.__all__]\n",
        },
    ),
    Example(
        "added by a patch",
        {"registry": None, "verl_omni.patch": _PATCH.format("+__all__ += list(toy_flow_grpo.__all__)")},
    ),
    Example("all three edits"),
    Example(
        "written another way",
        {"registry": _OTHER},
    ),
    Example(
        "a package alone",
        {name: None for name in FILES if name not in ("init", "model", "training", "rollout", "common", "spec")}
        | {"tests/gpu_smoke/lib_gpu_smoke.sh": None},
    ),
)
