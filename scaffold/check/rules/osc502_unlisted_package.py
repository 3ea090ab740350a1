"""The package is not, or only in part, listed in ``verl_omni/pipelines/__init__.py``.

Importing ``verl_omni.pipelines`` is what runs the ``register`` decorators. A package needs three edits there: its
name in ``from . import (…)``, ``from .package import *``, and its ``__all__`` added. One that is missing there does
not exist for the trainer, which says that the architecture is unknown.

Instead: make the three edits; ``--fix`` does.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.checked_tree import REGISTRY
from scaffold.check.model.package import Package
from scaffold.check.model.source import PATCH
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
    from scaffold.plan.hooks import add_package  # slow to import

    file, name = hit.data
    return {file.path: add_package(file.text, name)}


FAILING = (
    Example(
        "not listed",
        registry="from . import other\n\n__all__ = []\n",
        init=("from .diffusers_training_adapter", "«»from .diffusers_training_adapter"),
    ),
    Example(
        "no edit in the patch of a rendered tree",
        {"verl_omni.patch": "«»--- a/docs/index.md\n+++ b/docs/index.md\n@@ -1,1 +1,2 @@\n one\n+two\n"},
        registry=None,
    ),
)
PASSING = (
    Example(
        "a registry of star imports",
        registry="from .toy_flow_grpo import *  # noqa: F401, F403\n\n__all__ = list(toy_flow_grpo.__all__)\n",
    ),
)
