"""How a pipeline builds its denoiser: the statements of its constructor that lead to it, as one function."""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from scaffold.port.building_calls import SOURCES, Local, Maker, Plain, without_fetching
from scaffold.port.fixed_settings import with_settings
from scaffold.port.flattening import Flattener
from scaffold.port.lifting import Lifter
from scaffold.port.names import Defined, Scope
from scaffold.port.slicing import CONFIG, Follower, Owner, UnclearError, assigned_by, methods_named
from scaffold.source.modules import ModuleGraph
from scaffold.source.syntax import walk_tree

NAME = "build_denoiser"
# What the function may ask the engine's configuration for: the training module answers these.
ANSWERED = frozenset({"model", "tf_model_config", "quantization_config", "revision", "model_config", "dtype",
                      "load_file"})  # fmt: skip
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
        handed: whether the pipeline hands them to the denoiser's own loader by itself; they are the sources then.
        file: whether the checkpoint is one file of weights instead of a folder.
    """

    text: str
    module: str
    streamed: bool
    handed: bool = False
    file: bool = False

    @property
    def reads(self) -> bool:
        """Whether the function reads the files of weights itself."""
        return f"{CONFIG}.load_file(" in self.text


@dataclass(frozen=True)
class Unbuilt:
    """Why it is not known how a pipeline builds its denoiser: ``file:line`` and the reason."""

    at: str
    why: str


def building_of(
    graph: ModuleGraph, pipeline: Defined, attribute: str, denoiser: Defined, settings: Mapping[str, Any] | None = None
) -> Building | Unbuilt:
    """Return how a pipeline builds what it keeps in an attribute, or what stops whoever follows its source.

    Args:
        graph: modules of the source.
        pipeline: the pipeline's class.
        attribute: the attribute of ``self`` that holds the denoiser.
        denoiser: the denoiser's class.
        settings: those of the engine's that are fixed, by name; None where none are.
    """
    owners = list(owners_of(graph, pipeline))
    found = next(methods_named(owners, "__init__"), None)
    if found is None:
        return Unbuilt("", f"{pipeline.name} has no constructor of its own")
    owner, constructor = found
    # Only methods of the module whose names the function will see.
    owners = [entry for entry in owners if entry.info.name == owner.info.name]
    scope = Scope(graph, owner.info)
    stopped = UnclearError()
    for build in (_followed, partial(_flattened, settings=settings)):
        try:
            return build(scope, owners, attribute, denoiser)
        except UnclearError as error:
            stopped = error if error.line or not stopped.line else stopped
    what = f"`{stopped.statement}` is not followed" if stopped.line else f"`{stopped}` is not known to training"
    return Unbuilt(f"{owner.info.file}:{stopped.line or constructor.lineno}", what)


def _followed(scope: Scope, owners: Sequence[Owner], attribute: str, denoiser: Defined) -> Building:
    """Return how the constructor builds the denoiser, with the methods that it calls.

    Raises:
        UnclearError: something else takes part.
    """
    if _changed_afterwards(owners, attribute):
        raise UnclearError(attribute)
    maker = Maker(scope, attribute, denoiser)
    owners = [Owner(owner.info, maker.visit(copy.deepcopy(owner.node))) for owner in owners]
    method = next(node for _, node in methods_named(owners, "__init__"))
    follower = Follower(owners, f"self.{attribute}", lambda call: False)
    statements = follower.method(method, {f"self.{attribute}", f"self.{SOURCES}"})
    return _building(statements, attribute, maker, [])


def _flattened(
    scope: Scope,
    owners: Sequence[Owner],
    attribute: str,
    denoiser: Defined,
    settings: Mapping[str, Any] | None,
) -> Building:
    """Return how it is built where methods that are called by the way make it, change it or fill it.

    Raises:
        UnclearError: something else takes part.
    """
    flattener = Flattener(scope, owners, attribute, denoiser)
    constructor = copy.deepcopy(next(node for _, node in methods_named(owners, "__init__")))
    body = flattener.constructor(constructor)
    if settings is not None:
        body = with_settings(scope.graph, scope.info, body, settings)
    rest = [Owner(owner.info, flattener.others(owner.node)) for owner in owners]
    if _changed_afterwards(rest, attribute):
        raise UnclearError(attribute)
    lifter = Lifter(flattener.method_of)
    constructor.body = [lifter.visit(statement) for statement in body]
    maker = Maker(scope, attribute, denoiser)
    constructor = maker.visit(ast.fix_missing_locations(constructor))
    if not any(f"self.{SOURCES}" in assigned_by([node]) for node in constructor.body if not isinstance(node, ast.If)):
        constructor.body.insert(0, ast.parse(f"self.{SOURCES} = []").body[0])
    follower = Follower([], f"self.{attribute}", lambda call: casts_only(scope, call))
    statements = follower.method(constructor, {f"self.{attribute}", f"self.{SOURCES}"})
    made = {name for name in assigned_by(statements) if name.startswith("self.")}
    methods = (node for owner in rest for node in owner.node.body if isinstance(node, ast.FunctionDef))
    if any(assigned_by(method.body) & made for method in methods):
        raise UnclearError("another method assigns it, too")
    functions = [without_fetching(maker.visit(function)) for function in lifter.needed(statements)]
    local = Local(scope)
    statements = [local.visit(statement) for statement in statements]
    return _building(statements, attribute, maker, [*local.functions.values(), *functions])


def _building(statements: list[ast.stmt], attribute: str, maker: Maker, functions: Sequence[ast.stmt]) -> Building:
    if maker.streamed and maker.filled:
        raise UnclearError("weights come twice")
    text = _function(statements, attribute, maker.scope, functions)
    if maker.streamed and f"{CONFIG}.load_file(" in text:
        raise UnclearError("load_file")
    return Building(text, maker.scope.info.name, maker.streamed, maker.filled == "load_weights", _reads_model(text))


def _reads_model(text: str) -> bool:
    """Tell whether the checkpoint is one file, which the function is to read."""
    tree = ast.parse(text)
    model = f"{CONFIG}.model"
    assigned: dict[str, list[str]] = {}
    for node in walk_tree(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(ast.unparse(node.value))
    for node in walk_tree(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{CONFIG}.load_file":
            given = ast.unparse(node.args[0])
            if given == model or assigned.get(given) == [model]:
                return True
    return False


def owners_of(graph: ModuleGraph, origin: Defined, depth: int = 0) -> Iterator[Owner]:
    """Yield a class and its bases, in the order of lookup as far as single inheritance goes."""
    info = graph.find(origin.module)
    node = info.definitions.get(origin.name) if info is not None else None
    if info is None or not isinstance(node, ast.ClassDef) or depth > _DEPTH:
        return
    yield Owner(info, node)
    for base in node.bases:
        parent = Scope(graph, info).origin(base.id) if isinstance(base, ast.Name) else None
        if isinstance(parent, Defined):
            yield from owners_of(graph, parent, depth + 1)


def _changed_afterwards(owners: Sequence[Owner], attribute: str) -> bool:
    """Tell whether the pipeline puts other modules into the denoiser once it is built."""
    start = f"self.{attribute}."
    for owner in owners:
        for node in walk_tree(owner.node):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                if isinstance(target, ast.Attribute) and ast.unparse(target).startswith(start):
                    return True
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "setattr_module"):
                if node.args and f"{ast.unparse(node.args[0])}.".startswith(start):
                    return True
    return False


def _function(statements: list[ast.stmt], attribute: str, scope: Scope, functions: Sequence[ast.stmt]) -> str:
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
    lines = [ast.unparse(ast.fix_missing_locations(node)) for node in functions]
    lines += [ast.unparse(ast.fix_missing_locations(names.visit(copy.deepcopy(node)))) for node in statements]
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
    for node in walk_tree(tree):
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


# Functions that change no more of a module than the dtypes and places of its tensors.

_WALKS = ("parameters", "buffers", "modules", "children")
_READS = (*_WALKS, *(f"named_{name}" for name in _WALKS), "is_floating_point", "is_complex", "startswith", "endswith")
_MOVES = ("to", "float", "half", "bfloat16", "cpu", "cuda", "contiguous", "eval")
_CALLS = 4


def casts_only(scope: Scope, call: ast.expr, depth: int = 0) -> bool:
    """Tell whether a function of the source that is handed a module casts its tensors, and does nothing else to it.

    Args:
        scope: names where the call stands.
        call: the call.
        depth: how many functions lead to it.
    """
    func = call.func if isinstance(call, ast.Call) else None
    if isinstance(func, ast.Attribute):
        return func.attr in _MOVES
    origin = scope.origin(func.id) if isinstance(func, ast.Name) else None
    info = scope.graph.find(origin.module) if isinstance(origin, Defined) else None
    function = info.definitions.get(origin.name) if info is not None and isinstance(origin, Defined) else None
    if info is None or not isinstance(function, ast.FunctionDef) or depth > _CALLS:
        return False
    inside = Scope.of(scope.graph, info, function)
    for node in walk_tree(function):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if not isinstance(target, ast.Name) and not _is_cast(target, node.value):
                    return False
        elif isinstance(node, ast.Expr) and not isinstance(node.value, (ast.Constant, ast.Call)):
            return False
        elif isinstance(node, ast.Call):
            if not _is_read(inside, node) and not casts_only(inside, node, depth + 1):
                return False
        elif isinstance(node, (ast.Delete, ast.Global, ast.Nonlocal, ast.With, ast.Yield, ast.NamedExpr)):
            return False
    return True


def _is_read(scope: Scope, call: ast.Call) -> bool:
    """Tell whether a call is one of a module's questions, or of Python's own functions."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in _READS
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    own = name in scope.hidden or scope.origin(name) is not None
    return not own and hasattr(builtins, name) and name not in ("setattr", "delattr", "exec", "eval")


def _is_cast(target: ast.expr, value: ast.expr | None) -> bool:
    """Tell whether this is ``x.data = x.data.to(dtype=…)``."""
    return (
        isinstance(target, ast.Attribute)
        and target.attr == "data"
        and isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _MOVES
        and ast.unparse(value.func.value) == ast.unparse(target)
    )
