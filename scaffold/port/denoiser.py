"""A denoiser of vllm-omni's: how a package imports it, and all that is known of it, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.limits.cpu_limit import collector_off
from scaffold.port.building import NAME as BUILDER
from scaffold.port.building import Building, Unbuilt, building_of
from scaffold.port.building_calls import without_file_checks
from scaffold.port.closure import Closure, is_dataclass
from scaffold.port.constant_tables import constant_tables
from scaffold.port.context_arguments import context_arguments
from scaffold.port.glue import Glue
from scaffold.port.layer_lists import made_by_number, recomputed
from scaffold.port.names import Defined, resolve
from scaffold.port.own_model import own_model
from scaffold.port.result import Kept, KeptState, Port, kept_state
from scaffold.port.unset import Row
from scaffold.source.modules import ModuleGraph
from scaffold.source.syntax import lineage, walk_tree

if TYPE_CHECKING:
    from scaffold.upstream import UpstreamSource


# Parameters of constructors that say nothing about a denoiser in plain torch.
ENGINES_OWN = ("quant_config", "prefix")


# Syntax trees are many small objects, which go as a whole.
@collector_off()
def port_denoiser(
    source: UpstreamSource,
    module: str,
    name: str,
    *,
    stacked: Sequence[Row] = (),
    extra_methods: Sequence[str] = (),
    kept: Kept | None = None,
    method: str = "forward",
    settings: Mapping[str, Any] | None = None,
    constants: Mapping[str, object] | None = None,
) -> Port:
    """Return what is known of a class, and the module that imports it.

    Args:
        source: the version of vllm-omni to read; nothing of it is imported.
        module: dotted name of the module that has the class.
        name: the class.
        stacked: rows ``(parameter, part, shard)`` of the pipeline's loader, used where the denoiser's own has none.
        extra_methods: names of methods that are called beside ``forward``.
        kept: where the pipeline keeps the denoiser: how it is built is taken over then, as far as all of it is known.
        method: the one that predicts, where that is known; it must be among ``extra_methods`` if it is not ``forward``.
        settings: of the engine's table of a model's own settings, those that the package fixes; None where it fixes
            none.
        constants: given where the class is the pipeline itself, which is its own model: arguments of the method that
            always have one plain value. It is built without what the method does not need then.

    Raises:
        ScaffoldError: there is no such class.
    """
    graph = ModuleGraph(source)
    origin = resolve(graph, module, name)
    if not isinstance(origin, Defined) or graph.find(origin.module) is None:
        raise ScaffoldError(f"{module} in vllm-omni {source.label} has no class {name}")
    own = own_model(graph, origin, method, constants) if constants is not None else None
    building, unbuilt = None, None
    if own is not None:
        building = Building(own.builder, origin.module, streamed=True) if own.builder else None
    elif kept is not None:
        found = building_of(graph, Defined(kept.module, kept.name), kept.attribute, origin, settings)
        building, unbuilt = (found, None) if isinstance(found, Building) else (None, found)
    closure = Closure(graph, origin, extra_methods, stacked, own)
    loader = closure.loader()
    if building is not None and own is None and not _is_loaded(closure, building):
        building, unbuilt = None, Unbuilt("", f"{name} has no loader, and modules inside of it have")
    predicts = closure.method(method)
    context = context_arguments(*predicts) if predicts is not None else None
    inputs = _parameters(closure.tree, closure.names[origin], method)
    tables = None
    if own is None and kept is not None and building is not None:
        tables = constant_tables(graph, kept, origin, inputs)
    state = kept_state(closure.source, closure.classes)
    glue = _glue(graph, closure, kept, tables, state, building)
    if glue.unknown and building is not None:
        unbuilt = Unbuilt("", f"`{glue.unknown[0]}` is the engine's and has no counterpart")
        building, tables = None, None
        glue = _glue(graph, closure, kept, tables, state, building)
    text = glue.text(source.version or source.label, context.fields if context is not None else None)
    executed = glue.files()
    loads = building is not None and (building.streamed or building.handed)
    loads = loads and (closure.inner_loader() if own is not None else loader is not None)
    streams = building is not None and building.streamed
    return Port(
        text=without_file_checks(text),
        source=closure.source,
        entry=origin.name,
        classes=closure.classes,
        layer_classes=tuple(n for n in layer_classes(closure.tree) if n in closure.classes),
        gaps=closure.gaps,
        derived_from=tuple(sorted({*closure.files, *glue.carried, *executed})),
        fused=closure.fused,
        assumptions=closure.assumptions(method if context is not None else ""),
        parameters=tuple(
            n for n in _parameters(closure.tree, closure.names[origin], "__init__") if n not in ENGINES_OWN
        ),
        inputs=(*inputs, *(context.fields.values() if context is not None else ())),
        method=method,
        context=tuple(context.fields.items()) if context is not None else (),
        context_module=context.module if context is not None else "",
        state=state,
        executed=tuple(executed.items()),
        checkpointed=tuple(n for n in recomputed(closure.tree) if n in closure.classes),
        kept=kept,
        builder=BUILDER if building is not None else "",
        unbuilt=(unbuilt.at, unbuilt.why) if unbuilt is not None else None,
        streamed=streams,
        handed=building is not None and building.handed,
        reads=building is not None and building.reads,
        file=building is not None and building.file,
        constant=building is not None and _asks_nothing(building),
        shared=hands_modules_on(closure.tree),
        structures=holds_tensors(closure.tree, closure.classes),
        tables=tables is not None,
        loader=loads,
        own=own is not None,
        loader_lines=(loader,) if loader is not None else (),
    )


def _glue(
    graph: ModuleGraph,
    closure: Closure,
    kept: Kept | None,
    tables: str | None,
    state: Sequence[KeptState],
    building: Building | None,
) -> Glue:
    """Put the module together."""
    glue = Glue(graph, closure.entry)
    for owner in dict.fromkeys(entry.owner for entry in state if entry.first is not None):
        glue.name(closure.origins[owner])
    if tables is not None and kept is not None:
        glue.add(kept.module, tables)
    if building is not None:
        glue.add(building.module, building.text)
    return glue


def _asks_nothing(building: Building) -> bool:
    """Whether the function that builds the denoiser leaves the configuration that it is given alone."""
    function = ast.parse(building.text).body[0]
    assert isinstance(function, ast.FunctionDef)
    given = {argument.arg for argument in function.args.args}
    return not any(isinstance(inner, ast.Name) and inner.id in given for inner in walk_tree(function))


def _is_loaded(closure: Closure, building: Building) -> bool:
    """Tell whether the weights go the way that the building says.

    Without a loader of its own, names are parameters; the engine would ask modules inside of it for theirs.
    """
    if closure.loader() is not None or not (building.handed or building.streamed):
        return True
    return building.streamed and not closure.inner_loader()


def layer_classes(tree: ast.Module) -> tuple[str, ...]:
    """Return the classes of a module that it makes in lists, those inside of others left out."""
    own = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    listed: dict[str, str] = {}
    for node in own.values():
        for found in walk_tree(node):
            if isinstance(found, (ast.ListComp, ast.GeneratorExp)):
                element: ast.expr | None = found.elt
            else:
                element = made_by_number(found)
            if isinstance(element, ast.Call) and isinstance(element.func, ast.Name) and element.func.id in own:
                listed.setdefault(element.func.id, node.name)
    return tuple(name for name, owner in listed.items() if owner not in listed)


def holds_tensors(tree: ast.Module, names: Sequence[str]) -> bool:
    """Tell whether a dataclass of upstream's has fields that are tensors: wrappers of layers look into such objects."""
    kinds = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in names)
    return any(
        isinstance(field, ast.AnnAssign) and "Tensor" in ast.unparse(field.annotation)
        for kind in kinds
        if is_dataclass(kind)
        for field in kind.body
    )


def hands_modules_on(tree: ast.Module) -> bool:
    """Tell whether a class makes another with what it holds itself, as ``self.body = Body(self.layers)``.

    A module that both then hold has parameters of two names.
    """
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    own = {node.name for node in classes}
    for owner in classes:
        made = {
            ast.unparse(node.targets[0]): node.value
            for node in walk_tree(owner)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        }
        modules = {
            name
            for name, call in made.items()
            if name.startswith("self.") and (ast.unparse(call.func) in own or ast.unparse(call.func).startswith("nn."))
        }
        for name in modules:
            call = made[name]
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            if ast.unparse(call.func) in own and any(ast.unparse(argument) in modules for argument in given):
                return True
    return False


def _parameters(tree: ast.Module, entry: str, method: str) -> tuple[str, ...]:
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in lineage(classes, entry):
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == method:
                spec = statement.args
                return tuple(a.arg for a in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs][1:])
    return ()
