"""A pipeline that is the model of its own loop: its class, cut down to what the method that predicts needs."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scaffold.port.building import NAME, owners_of
from scaffold.port.building_calls import SOURCES, Maker
from scaffold.port.known_branches import decided
from scaffold.port.names import Defined, Scope, resolve
from scaffold.port.slicing import CONFIG, Follower, Owner, UnclearError, assigned_by, methods_named
from scaffold.source.modules import ModuleGraph
from scaffold.source.syntax import is_docstring, walk_tree

# What a pipeline declares as no part of what predicts: models that encode what a request brings, and its autoencoder.
_OTHER_PARTS = ("_encoder_modules", "_vae_modules")
_CONFIGURATION, _READERS = "config_class", ("get_config",)
_AUTO_LOADER = "AutoWeightsLoader"
# Contexts that mean nothing in training.
WITHOUT = ("no_grad", "inference_mode", "support_torch_compile", "compile", "set_grad_enabled", "set_forward_context")


@dataclass(frozen=True)
class OwnModel:
    """The class and the function that builds it, as texts that see the names of the pipeline's module.

    Attributes:
        tree: the class; its statements have the lines of the source.
        builder: the function; empty where the constructor cannot be followed.
    """

    tree: ast.ClassDef
    builder: str


def own_model(graph: ModuleGraph, pipeline: Defined, method: str, constants: Mapping[str, object]) -> OwnModel | None:
    """Return what is left of a pipeline's class when only ``method`` is asked of it; None where it has no such method.

    Args:
        graph: modules of the source.
        pipeline: the class.
        method: the one that predicts.
        constants: arguments that it is given the same plain value for in every call.
    """
    owners = list(owners_of(graph, pipeline))
    if not owners or next(methods_named(owners, method), None) is None:
        return None
    cut = _Cut(graph, owners)
    cut.add(method, constants)
    node = owners[0].node
    tree = ast.parse(f"class {node.name}(nn.Module):\n    pass").body[0]
    assert isinstance(tree, ast.ClassDef)
    ast.copy_location(tree, node)
    constructor = cut.constructor()
    builds = constructor is not None and _loads_by_names(owners)
    tree.body = [constructor or ast.parse("def __init__(self):\n    super().__init__()").body[0], *cut.methods.values()]
    ast.fix_missing_locations(tree)
    builder = _builder(node.name, constructor, cut.skipped) if builds and constructor is not None else ""
    return OwnModel(tree, builder)


def _builder(name: str, constructor: ast.FunctionDef, skipped: Iterable[str]) -> str:
    """Return the function that makes an object of the class with no more than what is needed."""
    lines = [line for line in constructor.body if "super()" not in ast.unparse(line)]
    text = "\n".join(ast.unparse(_Made().visit(copy.deepcopy(line))) for line in lines)
    text = "\n".join(
        [
            "from torch import nn",
            f"denoiser = {name}.__new__({name})",
            "nn.Module.__init__(denoiser)",
            *(f"denoiser.{attribute} = None" for attribute in sorted(skipped)),
            text,
            f"return denoiser, denoiser.{SOURCES}",
        ]
    )
    return f"def {NAME}({CONFIG}):\n" + "".join(f"    {line}\n" for line in text.splitlines())


class _Made(ast.NodeTransformer):
    """Gives the object its own name."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name("denoiser", node.ctx), node) if node.id == "self" else node


class _Cut:
    """The methods that are needed, and what they read of ``self``."""

    def __init__(self, graph: ModuleGraph, owners: Sequence[Owner]) -> None:
        self.graph, self.owners = graph, owners
        self.methods: dict[str, ast.FunctionDef] = {}
        self.read: set[str] = set()
        self.skipped: set[str] = set()  # what contexts that mean nothing in training are given
        self.others = frozenset(_declared(owners))

    def add(self, name: str, constants: Mapping[str, object]) -> None:
        """Take a method over, and the methods of ``self`` that it names."""
        found = next(methods_named(self.owners, name), None)
        if found is None or name in self.methods:
            return
        node = copy.deepcopy(found[1])
        if self._asks_configuration(node):
            self.read.add(CONFIG)  # the imported text asks, also where the answer is known
        decided(node, constants, self._returned)
        self.methods[name] = node
        node.body = [_LeavesOut(self._reads_others).visit(line) for line in node.body]
        self.skipped |= _attributes(node, skipped=True)
        for attribute in sorted(_attributes(node)):
            self.read.add(attribute)
            self.add(attribute, {})

    def _reads_others(self, node: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
        """Tell whether code asks a part of the pipeline that is not part of the model."""
        for attribute in _attributes(node) - seen:
            if attribute in self.others:
                return True
            found = next(methods_named(self.owners, attribute), None)
            if found is not None and self._reads_others(found[1], seen | {attribute}):
                return True
        return False

    def _asks_configuration(self, node: ast.FunctionDef) -> bool:
        """Tell whether a branch is taken by what the engine's configuration says, also through a method."""
        tests = (inner.test for inner in walk_tree(node) if isinstance(inner, (ast.If, ast.IfExp)))
        named = {attribute for test in tests for attribute in _attributes(test)}
        asked = (self._returned(attribute) for attribute in named)
        return CONFIG in named or any(CONFIG in _attributes(text) for text in asked if text is not None)

    def _returned(self, name: str) -> ast.expr | None:
        """Return what a method of ``self`` is, where it is one expression."""
        found = next(methods_named(self.owners, name), None)
        body = [n for n in found[1].body if not is_docstring(n)] if found is not None else []
        only = body[0] if len(body) == 1 else None
        return only.value if isinstance(only, ast.Return) else None

    def constructor(self) -> ast.FunctionDef | None:
        """Return the constructor with the statements that lead to what is read; None where more takes part."""
        found = next(methods_named(self.owners, "__init__"), None)
        if found is None or found[0].info.name != self.owners[0].info.name:
            return None
        owner, node = found[0], copy.deepcopy(found[1])
        wanted = {f"self.{name}" for name in self.read - set(self.methods)} | {f"self.{SOURCES}"}
        node.body = [_KeepsConfig().visit(line) for line in node.body]
        made = assigned_by(node.body)
        imports = self._configuration(node)
        Maker(Scope(self.graph, owner.info), "", Defined("", "")).visit(node)
        try:
            kept = Follower([], "", lambda call: False, parts=True).method(node, wanted & made)
        except UnclearError:
            return None
        node.body = [*imports, ast.parse("super().__init__()").body[0], *kept]
        return node

    def _configuration(self, constructor: ast.FunctionDef) -> list[ast.stmt]:
        """Let the class of configurations that the pipeline names read the checkpoint's; returns its import.

        What a checkpoint's own code would make of the file is code of the checkpoint, which training does not run.
        """
        for owner in self.owners:
            for line in owner.node.body:
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == _CONFIGURATION:
                    origin = resolve(self.graph, owner.info.name, ast.unparse(line.value))
                    if isinstance(origin, Defined):
                        _ReadsConfig(origin.name).visit(constructor)
                        return [ast.ImportFrom(origin.module, [ast.alias(origin.name)], 0)]
        return []


class _LeavesOut(ast.NodeTransformer):
    """Makes branches raise that ask other parts of the pipeline."""

    def __init__(self, asks: Callable[[ast.AST], bool]) -> None:
        self.asks = asks

    def visit_If(self, node: ast.If) -> ast.AST:
        if any(self.asks(inner) for inner in node.body) and not node.orelse:
            text = "raise NotImplementedError('what another model of the pipeline encodes is not an input of training')"
            raised = ast.copy_location(ast.parse(text).body[0], node.body[0])
            return ast.copy_location(ast.If(node.test, [raised], []), node)
        return self.generic_visit(node)


class _KeepsConfig(ast.NodeTransformer):
    """``super().__init__(config)`` of a model of transformers' keeps the configuration."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__" and len(call.args) == 1:
            target = ast.parse("self.config", mode="eval").body
            assert isinstance(target, ast.Attribute)
            target.ctx = ast.Store()
            return ast.copy_location(ast.Assign([target], call.args[0]), node)
        return node


class _ReadsConfig(ast.NodeTransformer):
    """``get_config(model)`` of the engine's is the checkpoint's configuration, which training has read."""

    def __init__(self, name: str) -> None:
        self.name = name

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in _READERS and node.args:
            if ast.unparse(node.args[0]) == f"{CONFIG}.model":
                text = f"{self.name}.from_dict({CONFIG}.tf_model_config.to_dict())"
                return ast.copy_location(ast.parse(text, mode="eval").body, node)
        return self.generic_visit(node)


def _declared(owners: Sequence[Owner]) -> Iterable[str]:
    """Yield the attributes that a pipeline declares as other parts than its model."""
    for owner in owners:
        for line in owner.node.body:
            targets = [line.target] if isinstance(line, ast.AnnAssign) else getattr(line, "targets", [])
            if any(isinstance(t, ast.Name) and t.id in _OTHER_PARTS for t in targets):
                value = getattr(line, "value", None)
                for entry in value.elts if isinstance(value, (ast.List, ast.Tuple)) else ():
                    if isinstance(entry, ast.Constant):
                        yield str(entry.value)


def _attributes(node: ast.AST, skipped: bool = False) -> set[str]:
    """Return what is read of ``self``, but for what contexts that mean nothing here are given, or that alone."""
    apart: set[int] = set()
    for inner in walk_tree(node):
        if isinstance(inner, ast.With):
            for item in inner.items:
                if ast.unparse(getattr(item.context_expr, "func", item.context_expr)).rpartition(".")[2] in WITHOUT:
                    apart |= {id(part) for part in walk_tree(item.context_expr)}
    return {
        inner.attr
        for inner in walk_tree(node)
        if isinstance(inner, ast.Attribute) and (id(inner) in apart) is skipped and ast.unparse(inner.value) == "self"
    }


def _loads_by_names(owners: Sequence[Owner]) -> bool:
    """Tell whether the pipeline hands weights to its modules by their names, and renames none."""
    found = next(methods_named(owners, "load_weights"), None)
    if found is None:
        return False
    returned = [node.value for node in walk_tree(found[1]) if isinstance(node, ast.Return) and node.value is not None]
    made = {
        ast.unparse(node.targets[0]): node.value
        for node in walk_tree(found[1])
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    }
    if len(returned) != 1 or not isinstance(returned[0], ast.Call) or not isinstance(returned[0].func, ast.Attribute):
        return False
    call = returned[0]
    assert isinstance(call.func, ast.Attribute)
    loader = made.get(ast.unparse(call.func.value), call.func.value)
    is_auto = isinstance(loader, ast.Call) and ast.unparse(loader.func) == _AUTO_LOADER
    mappers = [keyword.value for keyword in call.keywords]
    return is_auto and call.func.attr == "load_weights" and all(_only_skips(mapper) for mapper in mappers)


def _only_skips(mapper: ast.expr) -> bool:
    """Tell whether a ``WeightsMapper`` leaves names out and renames none."""
    given = [keyword.value for keyword in mapper.keywords] if isinstance(mapper, ast.Call) else []
    values = [v for g in given for v in ([g.value] if isinstance(g, ast.DictComp) else getattr(g, "values", [None]))]
    return bool(given) and all(isinstance(v, ast.Constant) and v.value is None for v in values)
