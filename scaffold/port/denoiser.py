"""A denoiser ported: what it needs of vllm-omni's source as one module of plain torch."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.files.reading import read_text
from scaffold.limits.collector import collector_off
from scaffold.port.building import Building, Unbuilt, building_of
from scaffold.port.building_calls import without_file_checks
from scaffold.port.checkpointed import CALLED, checkpoint_layers
from scaffold.port.constant_tables import NAME, constant_tables
from scaffold.port.engine import LOADER, NEVER, Engine, is_dataclass
from scaffold.port.folding import fold
from scaffold.port.kept_state import kept_state
from scaffold.port.layer_lists import made_by_number
from scaffold.port.module_text import module_text
from scaffold.port.names import Defined, resolve
from scaffold.port.own_model import OwnModel, own_model
from scaffold.port.result import Kept, Port
from scaffold.port.stacked import Row
from scaffold.port.supports import support_names
from scaffold.render.formats.python import LEFT_OUT, RULES, SETTINGS, WIDTH, run_ruff
from scaffold.render.long_lines import break_long_lines
from scaffold.scratch import scratch_folder
from scaffold.source.modules import ModuleGraph
from scaffold.source.syntax import is_docstring, lineage, walk_tree

if TYPE_CHECKING:
    from scaffold.upstream import UpstreamSource


# Values that are computed in float32 for a while: they go back to the dtype in which they came.

_WIDE, _LITERAL = "torch.float32", "torch.bfloat16"


def restore_precision(text: str) -> str:
    """Return a port whose functions give an argument its own dtype back, where upstream names the engine's.

    ``x = turn(x.to(torch.float32)); x = x.to(torch.bfloat16)`` is that where the engine computes in bfloat16; a module
    that is trained or compared in another dtype would mix two.
    """
    edits: list[tuple[int, int, int, str]] = []  # line, bytes of it, what stands there instead
    added: list[tuple[int, int, str]] = []
    for function in walk_tree(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for argument in (*function.args.args, *function.args.kwonlyargs):
            name = argument.arg
            found = [node for node in walk_tree(function) if isinstance(node, ast.Call) and _casts(node, _WIDE)]
            widened = any(ast.unparse(node.func) == f"{name}.to" for node in found)
            literals = [literal for node in walk_tree(function) if (literal := _given_back(node, name)) is not None]
            if not widened or not literals:
                continue
            edits += [(n.lineno, n.col_offset, n.end_col_offset or n.col_offset, f"{name}_dtype") for n in literals]
            first = next(line for line in function.body if not is_docstring(line))
            added.append((first.lineno, first.col_offset, f"{name}_dtype = {name}.dtype"))
    lines = [line.encode() for line in text.splitlines()]
    for line, start, end, put in sorted(edits, reverse=True):
        lines[line - 1] = lines[line - 1][:start] + put.encode() + lines[line - 1][end:]
    for line, indent, put in sorted(added, reverse=True):
        lines.insert(line - 1, b" " * indent + put.encode())
    return b"\n".join(lines).decode() + "\n" if edits else text


def _casts(node: ast.Call, dtype: str) -> bool:
    return len(node.args) == 1 and not node.keywords and ast.unparse(node.args[0]) == dtype


def _given_back(node: ast.AST, name: str) -> ast.expr | None:
    """The dtype in ``name = ….to(torch.bfloat16)``, made of ``name`` itself."""
    if not isinstance(node, ast.Assign) or ast.unparse(node.targets[0]) != name or not isinstance(node.value, ast.Call):
        return None
    call = node.value
    own = any(isinstance(inner, ast.Name) and inner.id == name for inner in walk_tree(call))
    narrows = isinstance(call.func, ast.Attribute) and call.func.attr == "to" and _casts(call, _LITERAL)
    return call.args[0] if own and narrows else None


_FATAL = frozenset({"F821", "F822", "F823", "F811", "invalid-syntax", None})


def finish(text: str) -> str:
    """Return the text formatted and clean under the target's rules.

    Raises:
        ScaffoldError: it does not parse or uses a name that it does not bind: a defect of the port.
    """
    with scratch_folder("port") as folder:
        path, settings = folder / "port.py", folder / "ruff.toml"
        path.write_text(text, encoding="utf-8", newline="\n")
        settings.write_text(SETTINGS, encoding="utf-8")
        common = ["--no-cache", "--config", str(settings)]
        rules = ["--select", RULES, "--ignore", LEFT_OUT, "--output-format", "json"]
        mended = ["--fix", "--unsafe-fixes", "--fixable", "F401,F841,I,UP,B905"]
        # Formatted first, so that only lines that cannot be shorter are too long.
        run_ruff(["format", *common, "--quiet", str(path)])
        left = run_ruff(["check", *common, *rules, *mended, str(path)])
        run_ruff(["format", *common, "--quiet", str(path)])
        broken = break_long_lines(read_text(path), WIDTH)
        path.write_text(broken, encoding="utf-8", newline="\n")
        run_ruff(["format", *common, "--quiet", str(path)])
        # What is left is upstream's style; the line that has it says so.
        run_ruff(["check", *common, "--select", RULES, "--ignore", LEFT_OUT, "--add-noqa", "--quiet", str(path)])
        finished = read_text(path)
    found = json.loads(left or "[]")
    for entry in found:
        if entry["code"] in _FATAL:
            row = entry["location"]["row"]
            raise ScaffoldError(f"the port has a defect in line {row}: {entry['message']}", hint="please report it")
    ast.parse(finished)
    return finished


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
    """Return the class and all that it needs as one module of plain torch.

    Args:
        source: the version of vllm-omni to read; nothing of it is imported.
        module: dotted name of the module that has the class.
        name: the class.
        stacked: rows ``(parameter, part, shard)`` of the pipeline's loader, used where the denoiser's own has none.
        extra_methods: names of methods to keep beside those that ``forward`` leads to.
        kept: where the pipeline keeps the denoiser: how it is built and how it takes weights is taken over then, as
            far as all of it has a counterpart.
        method: the one that predicts, where that is known; it must be among ``extra_methods`` if it is not ``forward``.
        settings: of the engine's table of a model's own settings, those that the package fixes; None where it fixes
            none.
        constants: given where the class is the pipeline itself, which is its own model: arguments of the method that
            always have one plain value. The class is cut down to what the method needs then.

    Raises:
        ScaffoldError: there is no such class, or the port is not a valid module.
    """
    graph = ModuleGraph(source)
    origin = resolve(graph, module, name)
    if not isinstance(origin, Defined) or graph.find(origin.module) is None:
        raise ScaffoldError(f"{module} in vllm-omni {source.label} has no class {name}")
    own = own_model(graph, origin, method, constants) if constants is not None else None
    request = _Request(
        graph, source.version or source.label, origin, tuple(stacked), frozenset(extra_methods), method, own
    )
    building, unbuilt = None, None
    if own is not None:
        building = Building(own.builder, origin.module, streamed=True) if own.builder else None
    elif kept is not None:
        found = building_of(graph, Defined(kept.module, kept.name), kept.attribute, origin, settings)
        building, unbuilt = (found, None) if isinstance(found, Building) else (None, found)
    streams = building is not None and building.streamed
    run = request.run(building, building is not None and (building.streamed or building.handed))
    if building is not None and not run.loads:
        building, run = None, request.run(None, False)
        unbuilt = Unbuilt("", f"{name} has no loader, and modules inside of it have")
    if run.engine.gaps and run.builder:
        # What is missing may be missing of these alone: they are left out then.
        bare = request.run(None, False)
        if set(run.engine.gaps) - set(bare.engine.gaps):
            run = bare
    tables = None
    if own is None and kept is not None and building is not None and run.builder and not run.engine.gaps:
        tables = constant_tables(graph, kept, origin, _arguments(run.engine, origin, method))
        if tables is not None:
            more = request.run(building, building.streamed or building.handed, (kept.module, tables))
            run, tables = (run, None) if more.engine.gaps else (more, tables)
    engine = run.engine
    files = tuple(sorted({engine.files.info(key.module).file for key in engine.order}))
    used = {run.builder, NAME, method, LOADER, *extra_methods, *support_names()}
    whole = fold(module_text(engine, _header(engine, origin, files)), engine.order[origin], used, engine.answered)
    checkpointed = checkpoint_layers(restore_precision(whole))
    text = finish(checkpointed.text if building is None else without_file_checks(checkpointed.text))
    tree = ast.parse(text)
    entry = engine.order[origin]
    classes = tuple(
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name in {engine.order[key] for key in engine.ported}
    )
    return Port(
        source=text,
        entry=entry,
        classes=classes,
        # Classes of ours stand for parts of one layer of the engine's.
        layer_classes=(*(n for n in layer_classes(tree) if n in classes), *([CALLED] if checkpointed.called else [])),
        gaps=tuple(engine.gaps[key] for key in sorted(engine.gaps)),
        derived_from=files,
        fused=tuple(engine.fused[key] for key in sorted(engine.fused)),
        assumptions=tuple(engine.assumptions[key] for key in sorted(engine.assumptions)),
        parameters=_parameters(tree, entry, "__init__"),
        inputs=_parameters(tree, entry, method),
        method=method,
        context=tuple(engine.context.fields.items()) if engine.context is not None else (),
        context_module=engine.context.module if engine.context is not None else "",
        state=kept_state(text, classes),
        checkpointed=checkpointed.layers,
        kept=kept,
        builder=run.builder,
        unbuilt=(unbuilt.at, unbuilt.why) if unbuilt is not None else None,
        streamed=streams and bool(run.builder),
        handed=building is not None and building.handed and bool(run.builder),
        reads=building is not None and building.reads and bool(run.builder),
        file=building is not None and building.file and bool(run.builder),
        constant=_asks_nothing(tree, run.builder),
        shared=hands_modules_on(tree),
        structures=holds_tensors(tree),
        tables=tables is not None,
        loader=bool(engine.loaders),
        own=own is not None,
        loader_lines=tuple(_lines(engine, key) for key in engine.loaders),
    )


def _asks_nothing(tree: ast.Module, builder: str) -> bool:
    """Whether the function that builds the denoiser leaves the configuration that it is given alone."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == builder]
    return bool(found) and not any(
        isinstance(inner, ast.Name) and inner.id in {argument.arg for argument in node.args.args}
        for node in found
        for inner in ast.walk(node)
    )


@dataclass(frozen=True)
class _Run:
    engine: Engine
    builder: str = ""
    loads: bool = True


@dataclass(frozen=True)
class _Request:
    """One denoiser, ported with or without how it is built and loaded."""

    graph: ModuleGraph
    version: str
    origin: Defined
    stacked: tuple[Row, ...]
    extra_methods: frozenset[str]
    method: str
    own: OwnModel | None = None

    def run(self, building: Building | None, loads: bool, *functions: tuple[str, str]) -> _Run:
        """Port it with functions beside it, each given as the module whose names it sees and its text."""
        engine = Engine(self.graph, self.version, list(self.stacked))
        engine.attributes |= self.extra_methods - NEVER
        engine.predicts = self.origin, self.method
        if self.own is not None:
            engine.files.replace(self.origin.module, self.own.tree)
            engine.keep_loaders = loads
        elif loads:
            engine.keep_loader(self.origin)
        entries = [self.origin, *(Defined(module, engine.files.add(module, text)) for module, text in functions)]
        if building is not None:
            entries.append(Defined(building.module, engine.files.add(building.module, building.text)))
        engine.run(*entries)
        if building is None:
            return _Run(engine)
        loaded = self.own is not None or _is_loaded(engine, building)
        return _Run(engine, engine.order[entries[-1]], loaded)


def _is_loaded(engine: Engine, building: Building) -> bool:
    """Tell whether the port has what puts the weights into the denoiser.

    Without a loader of its own, names are parameters; the engine would ask modules inside of it for theirs.
    """
    if engine.loaders or not (building.handed or building.streamed):
        return True
    inner = any(LOADER in entry.methods for key, entry in engine.classes.items() if key in engine.ported)
    return building.streamed and not inner


def _arguments(engine: Engine, key: Defined, method: str) -> list[str]:
    """Names of the arguments of a method of the class's own."""
    found = engine.classes[key].methods.get(method)
    return [argument.arg for argument in (*found[1].args.args, *found[1].args.kwonlyargs)] if found else []


def _lines(engine: Engine, key: Defined) -> tuple[str, int, int]:
    _, twin = engine.classes[key].methods[LOADER]
    return engine.files.info(key.module).file, twin.lineno, twin.end_lineno or twin.lineno


def _header(engine: Engine, origin: Defined, files: Sequence[str]) -> str:
    lines = "\n".join(f"- {file}" for file in files)
    return (
        f"{engine.order[origin]} of vllm-omni {engine.version} in plain torch.\n\n"
        f"Derived from these files of vllm-omni {engine.version} (Apache-2.0), for one device and for training: "
        f"parallel and fused\nlayers are plain ones, code that only serves inference is left out.\n\n{lines}\n"
    )


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


def holds_tensors(tree: ast.Module) -> bool:
    """Tell whether a dataclass of upstream's has fields that are tensors: wrappers of layers look into such objects."""
    kinds = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name != "AttentionInputs")
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
