"""The filter that picks the trainable parameters fits none of them.

``configure_trainable_params`` freezes what its filter does not name. A piece of a name that no parameter has freezes
everything: the optimiser has nothing to do, the loss is finite, and the weights that are synced are the old ones.

    parameter.requires_grad = "moe_generation" in name        # the modules end in _gen

Instead: test for a piece of the names that the module's sub-modules have.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.module_paths import module_paths
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC218"
NAME = "trainable-filter-without-match"
SEVERITY = "error"
CHECKLIST = ()
APPLIES = Applies(non_diffusers=True)
HELP = "test for a piece of a name that parameters of the training module have"
_WHERE = {"startswith": "at the beginning of its name", "endswith": "at the end of its name"}
_MATCHING = _WHERE.keys()


def check(package: Package) -> Hits:
    """Compare the filter with the names that the module's classes give to what they build."""
    for adapter in package.training_adapters:
        method = adapter.method("configure_trainable_params")
        module = package.built_module(adapter) or package.training_module
        if method is None or module is None or method.is_abstract:
            continue
        paths = module_paths(module)
        if not paths.complete or not paths.leaves:
            continue
        # Parameters end in a name of their own: .weight, .bias; numbers stand in lists.
        names = [name.replace("{n}", "0") for name in paths.leaves]
        own = [name.replace("{n}", "0") for name in paths.parameters]
        tests = list(_tests(method))
        yield from _frozen(package, method)
        if tests and not any(_fits(how, piece, names, own) for how, piece, _ in tests):
            for how, piece, node in tests:
                where = _WHERE.get(how, "in its name")
                yield Hit(method.file, node, f"no parameter of {module.name} has {piece!r} {where}")


def _frozen(package: Package, method: FunctionModel) -> Hits:
    """Look for methods that freeze everything, or the very parameters that LoRA is put on."""
    index = method.file.index
    given = [
        n for n in index.nodes(ast.Assign, method.node) if any("requires_grad" in ast.unparse(t) for t in n.targets)
    ]
    freed = [c for c in method.calls if isinstance(c.func, ast.Attribute) and c.func.attr == "requires_grad_"]
    if given and not freed and all(method.file.value(item.value) is False for item in given):
        yield Hit(method.file, given[0].value, "every parameter is frozen, and nothing is trained")
    targets = [
        name
        for script in (*package.launch_scripts, *package.e2e_scripts)
        if (item := script.override("actor_rollout_ref.model.target_modules")) is not None
        and isinstance(item.value, str)
        for name in re.findall(r"[\w.]+", item.value)
    ]
    for compare in index.nodes(ast.Compare, method.node):
        parent = index.parent(compare)
        direct = isinstance(parent, ast.Assign) and any("requires_grad" in ast.unparse(t) for t in parent.targets)
        if direct and isinstance(compare.ops[0], ast.NotIn) and _is_name(method, compare.comparators[0]):
            pieces = _pieces(method, compare.left)
            if targets and pieces and all(any(piece in name for piece in pieces) for name in targets):
                yield Hit(
                    method.file, compare, "what LoRA trains in the scripts is frozen here, and the rest is trained"
                )


def _tests(method: FunctionModel) -> Iterator[tuple[str, str, ast.AST]]:
    """Yield ``(in | startswith | endswith, piece, where)``, of tests of a name against plain pieces."""
    index = method.file.index
    for compare in index.nodes(ast.Compare, method.node):
        if (
            len(compare.ops) == 1
            and isinstance(compare.ops[0], (ast.In, ast.NotIn))
            and _is_name(method, compare.comparators[0])
        ):
            for piece in _pieces(method, compare.left):
                yield "in", piece, compare.left
    for call in method.calls:
        target = call.func
        if (
            isinstance(target, ast.Attribute)
            and target.attr in _MATCHING
            and call.args
            and _is_name(method, target.value)
        ):
            for piece in _pieces(method, call.args[0]):
                yield target.attr, piece, call.args[0]


def _is_name(method: FunctionModel, node: ast.expr) -> bool:
    """Whether something is the name of a parameter: the first target of a loop over ``named_parameters()``."""
    if not isinstance(node, ast.Name):
        return False
    for loop in method.file.index.nodes(ast.For, method.node):
        if isinstance(loop.target, ast.Tuple) and "named_" in ast.unparse(loop.iter):
            first = loop.target.elts[0]
            if isinstance(first, ast.Name) and first.id == node.id:
                return True
    return False


def _pieces(method: FunctionModel, node: ast.expr) -> list[str]:
    value: object = method.file.value(node)
    if isinstance(node, ast.Name) and not isinstance(value, (str, tuple, list)):
        # ``any(piece in name for piece in PIECES)``
        for generator in method.file.index.nodes(ast.comprehension, method.node):
            if isinstance(generator.target, ast.Name) and generator.target.id == node.id:
                value = method.file.value(generator.iter)
    pieces = [value] if isinstance(value, str) else value if isinstance(value, (tuple, list, set)) else []
    return [piece for piece in pieces if isinstance(piece, str)]


def _fits(how: str, piece: str, names: list[str], own: list[str]) -> bool:
    """Whether a test holds for a parameter: of a module below ``names``, or one that a class of the tree makes."""
    if how == "startswith":
        return any(name.startswith(piece) or piece.startswith(f"{name}.") for name in names)
    if how == "endswith":
        ends = [f"{name}{end}" for name in names for end in (".weight", ".bias")]
        return any(name.endswith(piece) for name in (*ends, *own))
    # Indices beyond the first stand for all.
    plain = "".join("0" if c.isdigit() and f".{c}." in piece else c for c in piece)
    return any(plain in f"{name}{end}" for name in names for end in (".weight", ".bias", ""))


_FILTER = 'parameter.requires_grad = "_gen" in name'
FAILING = (
    Example(
        "the end of a module's name",
        {"training": [(_FILTER, 'parameter.requires_grad = name.endswith(«"_gen"»)')]},
    ),
    Example("everything frozen", {"training": [(_FILTER, "parameter.requires_grad = «False»")]}),
    Example("the wrong half", {"training": [(_FILTER, 'parameter.requires_grad = «"_gen" not in name»')]}),
    Example(
        "a piece that no name has", {"training": [(_FILTER, 'parameter.requires_grad = «"moe_generation"» in name')]}
    ),
    Example(
        "a wrong beginning", {"training": [(_FILTER, 'parameter.requires_grad = name.startswith(«"transformer."»)')]}
    ),
    Example(
        "several pieces, none of which fits",
        {
            "training": [
                (_FILTER, "parameter.requires_grad = any(«piece» in name for piece in TRAINED)"),
                (
                    "\n\n@DiffusionModelBase.register(",
                    '\nTRAINED = ("image_branch",)\n\n\n@DiffusionModelBase.register(',
                ),
            ]
        },
    ),
)
PASSING = (
    Example("a piece of some names"),
    Example(
        "one of several fits", {"training": [(_FILTER, 'parameter.requires_grad = "_gen" in name or "lora" in name')]}
    ),
    Example("a beginning", {"training": [(_FILTER, 'parameter.requires_grad = name.startswith("layers.")')]}),
    Example("left to diffusers", base="diffusers"),
)
