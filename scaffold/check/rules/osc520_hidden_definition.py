"""A name of verl-omni's, or one that is imported, is bound to something else.

The code reads as if it used the shared definition, and it uses the one beside it. A base class written again has
neither adapters nor a registry; a schedule, a guidance or a flag that hides the one of the shared file lets the two
sides of the training drift apart, though both name the same thing.

    from .common import INCLUDE_LOGPROB_NORMALIZER
    …
    INCLUDE_LOGPROB_NORMALIZER = True                # what the module uses from here on

Instead: import the definition and leave its name alone.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC520"
NAME = "hidden-definition"
SEVERITY = "error"
CHECKLIST = ("M2", "T1", "R1", "pitfall 7", "pitfall 29", "pitfall 30")
APPLIES = Applies(diffusion=None, resolved=False)
HELP = "use the imported definition, or give the other one a name of its own"


def check(package: Package) -> Hits:
    """Look for classes with a name of verl-omni's, and for imported names that are bound again."""
    inherited = {base for cls in package.classes for base in cls.mro[1:]}
    for cls in package.classes:
        # Where one inherits it, the heir is what is reported: it is no heir of verl-omni's.
        if cls.stands_in and cls not in inherited:
            yield Hit(cls.file, cls.node, f"this is not verl-omni's {cls.name}")
    for file in package.files:
        yield from _bound_again(file)


def _bound_again(file: PythonFile) -> Hits:
    for name, bindings in file.names.items():
        if len(bindings) < 2 or bindings[0].kind != "import" or not _plain(file, bindings[0].node):
            continue
        for binding in bindings[1:]:
            if binding.kind == "import" or not _plain(file, binding.node):
                continue
            made_of = file.index.nodes(ast.Name, binding.value) if binding.value is not None else []
            if not any(node.id == name for node in made_of):
                source = (binding.target or bindings[0].target or "").rpartition(".")[0]
                yield Hit(file, binding.node, f"this hides {name} of {source}")


def _plain(file: PythonFile, node: ast.AST) -> bool:
    """Whether a definition holds always: a plain statement of the module."""
    while not isinstance(node, ast.stmt):
        above = file.index.parent(node)
        if above is None:
            return False
        node = above
    single = isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign))
    return single and file.index.parent(node) is file.tree and not (isinstance(node, ast.AnnAssign) and not node.value)


_BASE = "from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase\n"
_REGISTER = "from verl_omni.pipelines.model_base import VllmOmniPipelineBase\n"
_OWN_REGISTER = (
    "\n\nclass «VllmOmniPipelineBase»:\n    @classmethod\n    def register(cls, architecture, algorithm):\n"
    "        return lambda adapter: adapter\n\n\n"
)
_ADAPTER = "@DiffusionModelBase.register("
_GUIDANCE = (
    'def {}resolve_guidance{}(overrides):\n    return {{"cfg_text_scale": 3.0, "cfg_interval": (0.0, 1.0)}}\n\n\n'
)
FAILING = (
    Example(
        "the register written again",
        {"rollout": [(_REGISTER, _OWN_REGISTER)]},
    ),
    Example(
        "a function of the shared file",
        {"training": [(_ADAPTER, _GUIDANCE.format("«", "»") + _ADAPTER)]},
        also=("OSC205",),
    ),
    Example(
        "a flag of the shared file",
        {"training": [(_ADAPTER, "«INCLUDE_LOGPROB_NORMALIZER» = True\n\n\n" + _ADAPTER)]},
    ),
)
PASSING = (
    Example("what is imported is used"),
    Example(
        "where the import fails",
        {
            "training": [
                (
                    "import torch\n",
                    "import torch\n\ntry:\n    from fast import resolve\nexcept ImportError:\n    resolve = None\n",
                )
            ]
        },
    ),
    Example(
        "made of what is imported",
        {"training": [(_ADAPTER, "resolve_guidance = torch.no_grad()(resolve_guidance)\n\n\n" + _ADAPTER)]},
    ),
    Example(
        "an heir of the same name",
        {
            "model": [
                (
                    _BASE,
                    _BASE.replace("import NonD", "import NonDiffusersModelBase as Base  # NonD").split("  #")[0] + "\n",
                ),
                ("class RMSNorm(", "class NonDiffusersModelBase(Base):\n    pass\n\n\nclass RMSNorm("),
            ]
        },
    ),
)
