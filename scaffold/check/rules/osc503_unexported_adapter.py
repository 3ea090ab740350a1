"""The package's ``__init__.py`` does not re-export a registered adapter.

``register`` runs when the adapter's module is imported, and the only import that reaches it goes through the
package's ``__init__.py``. An adapter that is not imported there does not exist for the trainer; one that is missing in
``__all__`` is not part of ``verl_omni.pipelines``, which collects these lists.

    from .diffusers_training_adapter import ToyDiffusion     # and nothing from vllm_omni_rollout_adapter

Instead: import both adapters in ``__init__.py`` and name them in ``__all__``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.constants import known
from scaffold.check.model.package import Package
from scaffold.check.model.python import ClassModel, PythonFile
from scaffold.check.rule import Hit, Hits

ID = "OSC503"
NAME = "unexported-adapter"
SEVERITY = "error"
CHECKLIST = ("W1", "pitfall 25")
FIX_SAFETY = "safe"


def check(package: Package) -> Hits:
    """Look for each registered adapter in ``__init__.py``."""
    init = package.init
    if init is None:
        for cls in dict.fromkeys(r.cls for side in ("training", "rollout") for r in package.registered(side)):
            if cls is not None and cls.file in package.files:
                text = f"{package.path}/__init__.py is not there, so nothing imports {cls.name}"
                yield Hit(cls.file, cls.node, text, "write it, with both adapters in __all__", fixable=False)
        return
    registry = package.project.registry
    if registry is not None and package.name in registry.exported and not _may_have_all(init):
        text = f"there is no __all__, and {registry.file.path} adds {package.name}.__all__"
        yield Hit(init, Span(1, 1, 1, 1), text, "name both adapters in __all__", fixable=False)
    for binding in init.names.get("__all__", ()):
        if binding.value is not None and isinstance(init.value(binding.value), str):
            yield Hit(init, binding.value, "__all__ is one string, and its letters are the names", fixable=False)
    for block in init.index.nodes(ast.Try):
        for handler in block.handlers:
            caught = ast.unparse(handler.type) if handler.type is not None else ""
            raised = any(isinstance(node, ast.Raise) for node in init.index.walk(handler))
            adapter = any("adapter" in (node.module or "") for node in init.index.nodes(ast.ImportFrom, block))
            if adapter and not raised and caught in ("", "ImportError", "Exception", "ModuleNotFoundError"):
                text = "an adapter that cannot be imported is left out without a word"
                yield Hit(init, handler, text, "import it plainly", fixable=False)
    adapters = [r.cls for side in ("training", "rollout") for r in package.registered(side) if r.cls is not None]
    lacking: list[ClassModel] = []
    for cls in dict.fromkeys(adapters):
        if cls.resolved and cls in package.rollout_adapters and not cls.external:
            continue  # decorated by mistake: to export it would be wrong, too
        if cls.file not in package.files or cls.file is init or "." in cls.qualname.removeprefix(f"{cls.file.module}."):
            continue
        name = cls.node.name
        text = f"{name} of {cls.file.name} is not imported here, so it is never registered"
        if not _imported(package, init, cls):
            help = f"write `from .{cls.file.stem} import {name}` and name it in __all__"
            yield Hit(init, Span(1, 1, 1, 1), text, help, fixable=name not in init.names, data=[cls])
            continue
        listed = _listed(init)
        if listed is not None and name not in listed[1]:
            lacking.append(cls)
    listed = _listed(init)
    if lacking and listed is not None:
        names = [cls.node.name for cls in lacking]
        text = f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} not named in __all__"
        help = f"add {' and '.join(map(repr, names))} to __all__"
        yield Hit(init, listed[0], text, help, data=lacking)


def _may_have_all(init: PythonFile) -> bool:
    return "__all__" in init.names or "__all__" in init.changed_names or init.problem is not None


def _imported(package: Package, init: PythonFile, cls: ClassModel) -> bool:
    """Whether importing the package certainly or possibly binds the class."""
    for binding in init.names.get(cls.node.name, []):
        module = (binding.target or "").rpartition(".")[0] if binding.kind == "import" else ""
        if module.startswith(f"{package.module}.") and package.project.module(module) is None:
            return False
    found = package.project.definition(f"{package.module}.{cls.node.name}")
    if found is not None:
        return found[1].node is cls.node
    # A star import of something that cannot be read, or a name that is bound in another way.
    return cls.node.name in init.names or any(package.project.module(module) is None for module, _ in init.stars)


def _listed(init: PythonFile) -> tuple[ast.expr, list[str]] | None:
    """Return the expression of ``__all__`` and its names, None where the text does not tell."""
    bindings = init.names.get("__all__", [])
    if len(bindings) != 1 or bindings[0].value is None or "__all__" in init.changed_names:
        return None
    value = init.value(bindings[0].value)
    if not isinstance(value, (list, tuple)) or not known(value):
        return None
    return bindings[0].value, [str(name) for name in value]


def fix(hit: Hit) -> str | None:
    """Import the adapter and name it in ``__all__``, where that is a plain list."""
    from scaffold.check.editing import add_import, replace_expression

    init, classes = hit.file, hit.data
    assert isinstance(init, PythonFile)
    text = init.text
    listed = _listed(init)
    new = [cls.node.name for cls in classes if listed is not None and cls.node.name not in listed[1]]
    if listed is not None and new:
        node = listed[0]
        if not isinstance(node, (ast.List, ast.Tuple)):
            return None
        names = ", ".join(f'"{item}"' for item in (*listed[1], *new))
        text = replace_expression(init, node, f"[{names}]" if isinstance(node, ast.List) else f"({names},)")
    for cls in classes:
        if cls.node.name not in init.names:
            text = add_import(text, f".{cls.file.stem}", cls.node.name)
    return text


FAILING = (
    Example("neither in __all__", init=('["ToyDiffusion", "ToyPipelineWithLogProb"]', "«[]»")),
    Example("a string", init=('["ToyDiffusion", "ToyPipelineWithLogProb"]', '«"ToyDiffusion"»')),
)
PASSING = (Example("by star import", init=(" ToyPipelineWithLogProb", " *")),)
