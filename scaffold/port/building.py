"""How a pipeline builds its denoiser: the statements of its constructor that lead to it, as one function."""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scaffold.inspect.program.modules import ModuleGraph
from scaffold.port.building_calls import SOURCES, Maker, Plain
from scaffold.port.names import Defined, Scope
from scaffold.port.own_names import assigned_by
from scaffold.port.slicing import CONFIG, Follower, Owner, UnclearError, methods_named

NAME = "build_denoiser"
# What the function may ask the engine's configuration for: the training module answers these.
ANSWERED = frozenset({"model", "tf_model_config", "quantization_config", "revision", "model_config", "dtype"})
_DEPTH = 6


@dataclass(frozen=True)
class Building:
    """The text of a function of ``od_config`` that returns the denoiser and its sources of weights.

    A source is ``(subfolder, prefix, patterns)``: the folder of the checkpoint, what the engine puts before its keys,
    and names of files where not all of the folder are meant. Where the pipeline reads weights by itself, the sources
    are those weights.

    Attributes:
        text: the function.
        module: the module whose names it sees.
        streamed: whether the engine streams the weights to the pipeline.
    """

    text: str
    module: str
    streamed: bool


def building_of(graph: ModuleGraph, pipeline: Defined, attribute: str, denoiser: Defined) -> Building | None:
    """Return how a pipeline builds what it keeps in an attribute; None where its source cannot be followed.

    Args:
        graph: modules of the source.
        pipeline: the pipeline's class.
        attribute: the attribute of ``self`` that holds the denoiser.
        denoiser: the denoiser's class.
    """
    owners = list(_owners(graph, pipeline))
    found = next((pair for pair in methods_named(owners, "__init__")), None)
    if found is None or _changed_afterwards(owners, attribute):
        return None
    owner, _ = found
    # Only methods of the module whose names the function will see.
    owners = [entry for entry in owners if entry.info.name == owner.info.name]
    try:
        maker = Maker(Scope(graph, owner.info, frozenset(), {}), attribute, denoiser)
        for entry in owners:
            entry.node = maker.visit(copy.deepcopy(entry.node))
        method = next(node for _, node in methods_named(owners, "__init__"))
        statements = Follower(owners, f"self.{attribute}").method(method, {f"self.{attribute}", f"self.{SOURCES}"})
        return Building(_function(statements, attribute, maker.scope), owner.info.name, maker.streamed)
    except UnclearError:
        return None


def _owners(graph: ModuleGraph, origin: Defined, depth: int = 0) -> Iterator[Owner]:
    """Yield a class and its bases, in the order of lookup as far as single inheritance goes."""
    info = graph.find(origin.module)
    node = info.definitions.get(origin.name) if info is not None else None
    if info is None or not isinstance(node, ast.ClassDef) or depth > _DEPTH:
        return
    yield Owner(info, node)
    for base in node.bases:
        parent = Scope(graph, info, frozenset(), {}).origin(base.id) if isinstance(base, ast.Name) else None
        if isinstance(parent, Defined):
            yield from _owners(graph, parent, depth + 1)


def _changed_afterwards(owners: Sequence[Owner], attribute: str) -> bool:
    """Tell whether the pipeline puts other modules into the denoiser once it is built."""
    start = f"self.{attribute}."
    for owner in owners:
        for node in ast.walk(owner.node):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                if isinstance(target, ast.Attribute) and ast.unparse(target).startswith(start):
                    return True
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "setattr_module"):
                if node.args and f"{ast.unparse(node.args[0])}.".startswith(start):
                    return True
    return False


def _function(statements: list[ast.stmt], attribute: str, scope: Scope) -> str:
    """Return the text of the function.

    Raises:
        UnclearError: the engine is asked for more than training can answer, or something else of ``self`` is read.
    """
    assigned = assigned_by(statements)
    if not {f"self.{attribute}", f"self.{SOURCES}"} <= assigned:
        raise UnclearError(attribute)
    local = {name for name in assigned if not name.startswith("self.")} | {CONFIG}
    spelled = {}
    for name in sorted(assigned):
        if name.startswith("self."):
            plain = name.removeprefix("self.")
            spelled[name] = f"{plain}_" if plain in local and plain != CONFIG else plain
    names = Plain(spelled)
    lines = [ast.unparse(ast.fix_missing_locations(names.visit(copy.deepcopy(node)))) for node in statements]
    lines = [line for line in lines if line not in ("pass", f"{CONFIG} = {CONFIG}")]
    lines.append(f"return {spelled[f'self.{attribute}']}, {spelled[f'self.{SOURCES}']}")
    text = f"def {NAME}({CONFIG}):\n" + "".join(f"    {line}\n" for line in "\n".join(lines).splitlines())
    _check(text, scope)
    return text


def _check(text: str, scope: Scope) -> None:
    """Hold the function against what training can answer, and against the names that its module binds.

    Raises:
        UnclearError: it asks for something else.
    """
    tree = ast.parse(text)
    inside = Scope.of(scope.graph, scope.info, tree.body[0])
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in inside.hidden and not hasattr(builtins, node.id):
            if inside.origin(node.id) is None:
                raise UnclearError(node.id)
        asked: object = None
        if isinstance(node, ast.Name) and node.id == "self":
            raise UnclearError("self")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == CONFIG:
            asked = node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 1:
            if ast.unparse(node.args[0]) == CONFIG:
                asked = node.args[1].value if isinstance(node.args[1], ast.Constant) else "?"
        if asked is not None and asked not in ANSWERED:
            raise UnclearError(f"{CONFIG}.{asked}")
