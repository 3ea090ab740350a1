"""Loops of a pipeline's own folder that may denoise although no request was followed to them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from scaffold.errors import ScaffoldError
from scaffold.inspect.facts import Evidence
from scaffold.source.syntax import walk_tree
from scaffold.upstream import PipelineTarget, UpstreamSource
from scaffold.upstream.registry import read_registry

_SCHEDULE_WORDS = ("timestep", "sigma", "denois", "num_steps", "inference_steps", "diffusion_steps", "schedule")
_LOADS = ("load_weights", "__init__")
MAX_LOOPS = 6
"""How many functions are tried by themselves."""

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


_ON_USE = ("__init__", "__call__", "forward")
"""Methods that run where a class is instantiated and its object called."""


@dataclass(frozen=True)
class HiddenLoop:
    """A loop, the function it stands in, and that function's class."""

    function: FunctionNode
    owner: ast.ClassDef | None
    at: Evidence


def hidden_loops(source: UpstreamSource, target: PipelineTarget) -> list[HiddenLoop]:
    """Loops over a schedule, loops that take a scheduler's step, and loops that add to a variable what a call gave.

    Only those count to which the pipeline's own methods may lead. The pipeline's own module comes first.
    """
    folder = target.file.rpartition("/")[0] + "/"
    files = [target.file, *(f for f in source.files(folder) if f != target.file)]
    found: list[HiddenLoop] = []
    trees: list[ast.Module] = []
    for file in files:
        try:
            tree = source.tree(file)
        except ScaffoldError:
            continue
        trees.append(tree)
        for function, owner in _functions(tree):
            at = next((n.lineno for n in _own_nodes(function) if _may_denoise(n)), None)
            if at is not None and function.name not in _LOADS:
                found.append(HiddenLoop(function, owner, Evidence(file, at)))
    if not found:
        return []
    pipelines = {name for _, _, name in read_registry(source).values()}
    reached = _reached_functions(trees, target.class_name, pipelines)
    return [loop for loop in found if id(loop.function) in reached][:MAX_LOOPS]


def _functions(tree: ast.Module) -> Iterator[tuple[FunctionNode, ast.ClassDef | None]]:
    for node in tree.body:
        if isinstance(node, FunctionNode):
            yield node, None
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, FunctionNode):
                    yield inner, node


def _own_nodes(function: FunctionNode) -> Iterator[ast.For | ast.While]:
    for node in walk_tree(function):
        if isinstance(node, (ast.For, ast.While)):
            yield node


def _may_denoise(loop: ast.For | ast.While) -> bool:
    head = loop.iter if isinstance(loop, ast.For) else loop.test
    names = [n.id for n in walk_tree(head) if isinstance(n, ast.Name)]
    names += [n.attr for n in walk_tree(head) if isinstance(n, ast.Attribute)]
    if any(word in name.lower() for name in names for word in _SCHEDULE_WORDS):
        return any(isinstance(n, ast.Call) for s in loop.body for n in walk_tree(s))
    for node in walk_tree(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
            if len(node.args) + len(node.keywords) >= 3:
                return True
        if isinstance(loop, ast.While) and isinstance(node, ast.Assign) and _adds_to_itself(node):
            return True
    return False


def _adds_to_itself(node: ast.Assign) -> bool:
    """``x = x + a * b``"""
    target, value = node.targets[0], node.value
    if not isinstance(target, ast.Name) or not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return False
    return isinstance(value.left, ast.Name) and value.left.id == target.id and isinstance(value.right, ast.BinOp)


def _reached_functions(trees: list[ast.Module], cls: str, pipelines: set[str]) -> set[int]:
    """The ``id`` of each function that a method of the class called ``cls`` may lead to.

    A name leads to every function, method and class of that name; a class only named to take a method from it leads
    to none of the others. No pipeline calls the forward of another, of those called ``pipelines``, by its bare name.
    """
    functions: dict[str, list[FunctionNode]] = {}
    classes: dict[str, list[ast.ClassDef]] = {}
    apart = pipelines - {cls}
    for tree in trees:
        for node in tree.body:
            if isinstance(node, FunctionNode):
                functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)
                for inner in _methods(node):
                    if node.name not in apart or inner.name not in _ON_USE:
                        functions.setdefault(inner.name, []).append(inner)
    reached: set[int] = set()
    pending = [m for name in _lineage(classes, cls) for node in classes[name] for m in _methods(node)]
    pending = pending if cls in classes else [f for named in functions.values() for f in named]
    while pending:
        function = pending.pop()
        if id(function) in reached:
            continue
        reached.add(id(function))
        for name in _names(function):
            pending += functions.get(name, ())
            for node in classes.get(name, ()):
                pending += [m for m in _methods(node) if m.name in _ON_USE]
    return reached


def _lineage(classes: dict[str, list[ast.ClassDef]], cls: str) -> list[str]:
    """A class and its bases in the folder."""
    found: list[str] = []
    pending = [cls]
    while pending:
        name = pending.pop()
        if name in classes and name not in found:
            found.append(name)
            bases = [base for node in classes[name] for base in node.bases]
            pending += [base.id for base in bases if isinstance(base, ast.Name)]
    return found


def _methods(node: ast.ClassDef) -> list[FunctionNode]:
    return [inner for inner in node.body if isinstance(inner, FunctionNode)]


def _names(function: FunctionNode) -> Iterator[str]:
    """What a function speaks of: variables, attributes, and texts that may be names of either."""
    bases = {id(n.value) for n in walk_tree(function) if isinstance(n, ast.Attribute)}
    for node in walk_tree(function):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name) and id(node) not in bases:
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value
