"""The training module builds a part that its forward code never uses.

The weights are loaded, sharded and saved, and do nothing: the pathway that they belong to works with other weights or
is missing. With LoRA on it the adapter's B stays zero although the loss is finite.

    self.o_proj_gen = nn.Linear(…)            # forward() calls self.o_proj for both streams

Instead: use every part where the rollout's model uses it, or do not build it.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.python import ClassModel, FunctionModel
from scaffold.check.model.submodules import Submodule, submodules
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC121"
NAME = "unused-submodule"
SEVERITY = "error"
CHECKLIST = ("M7", "M8", "pitfall 19", "pitfall 22")
APPLIES = Applies(non_diffusers=True)
HELP = "use it where the rollout's model uses it, or do not build it"
_DYNAMIC = {"getattr", "children", "named_children", "modules", "named_modules", "_modules", "__dict__", "vars"}


def check(package: Package) -> Hits:
    """Look for every sub-module and parameter in the code that ``forward`` reaches."""
    module = package.training_module
    if module is None or not module.resolved:
        return
    functions = [
        function for function in package.forward_functions if function.name not in ("__init__", "__post_init__")
    ]
    if not functions:
        return
    elsewhere: set[str] = set()
    inside: dict[ClassModel | None, set[str]] = {}
    for function in functions:
        for node in function.nodes(ast.Attribute):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            own = isinstance(node.value, ast.Name) and node.value.id == function.bound
            if node.attr in _DYNAMIC:
                return
            inside.setdefault(function.cls, set()).add(node.attr) if own else elsewhere.add(node.attr)
        if any(isinstance(call.func, ast.Name) and call.func.id in _DYNAMIC for call in function.calls):
            return
    yield from _part_of_list(package, module)
    reached = {function.cls for function in functions if function.name == "forward"}
    classes = [module, *dict.fromkeys(part.cls for part in package.module_tree if part.cls is not None)]
    for cls in classes:
        forward = cls.method("forward")
        if cls.file not in package.files or forward is None or forward.cls not in reached or not cls.resolved:
            continue
        read = {
            name
            for owner, names in inside.items()
            if owner in cls.mro or (owner and cls in owner.mro)
            for name in names
        }
        seen: set[str] = set()
        for part in submodules(cls):
            if part.owner is not cls or part.name in seen | read | elsewhere or not _has_weights(part):
                continue
            # What comes after the last layer may need only one of two streams.
            if cls is not module or not any(name.startswith(f"{part.name}_") for name in read):
                seen.add(part.name)
                yield Hit(part.file, part.node, f"{cls.name} builds {part.name} and never uses it in its forward code")


def _part_of_list(package: Package, module: ClassModel) -> Hits:
    """Look for loops over a part of a list of layers, where nothing runs the rest."""
    lists = {part.name for part in package.module_tree if part.repeated and part.owner in module.mro}
    reads: dict[str, list[tuple[FunctionModel, ast.Attribute]]] = {}
    for function in package.forward_functions:
        for node in function.nodes(ast.Attribute) if function.name != "__init__" else ():
            if isinstance(node, ast.Attribute) and node.attr in lists and function.cls in module.mro:
                around = function.file.index.parent(node)
                counted = isinstance(around, ast.Call) and isinstance(around.func, ast.Name) and around.func.id == "len"
                if not counted:
                    reads.setdefault(node.attr, []).append((function, node))
    for name, found in reads.items():
        function, node = found[0]
        part = function.file.index.parent(node)
        if (
            len(found) == 1
            and function.file in package.files
            and isinstance(part, ast.Subscript)
            and part.value is node
        ):
            cut = part.slice
            if isinstance(cut, ast.Slice) and cut.step is None and any(_number(end) for end in (cut.lower, cut.upper)):
                yield Hit(function.file, part, f"only a part of {name} runs")


def _number(node: ast.expr | None) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and inner.value != 0


def _has_weights(part: Submodule) -> bool:
    if part.cls is not None:
        return bool(part.cls.derives_from("Module", "torch.nn.Module"))
    return part.qualified is not None and part.qualified.startswith("torch.nn.")


FAILING = (
    Example("a part of the layers", model=(" self.layers:", " «self.layers[:-1]»:")),
    Example(
        "a twin that is not used",
        model=[("        self.o_proj_gen", "        «self.o_proj_gen»"), (".o_proj_gen(", ".o_proj(")],
    ),
)
PASSING = (Example("found by name", model=(" self.o_proj_gen(", ' getattr(self, "o_proj_gen")(')),)
