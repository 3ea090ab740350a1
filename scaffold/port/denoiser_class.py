"""Which class the denoiser is, where the report knows no more than the pipeline's attribute that holds it, or less."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from scaffold.port.building import owners_of
from scaffold.port.names import Defined, Scope, resolve
from scaffold.port.result import Kept
from scaffold.source.modules import ModuleGraph, ModuleInfo
from scaffold.source.syntax import is_own, walk_tree

if TYPE_CHECKING:
    from scaffold.inspect import Report

# What pipelines call the attribute that holds their denoiser, where the loop itself does not name it.
_USUAL = ("transformer", "dit")
_DEPTH = 4


def pipeline_class(graph: ModuleGraph, report: Report) -> Defined | None:
    """Return the class of a report's pipeline; None where its module does not define it."""
    found = resolve(graph, report.upstream.module, str(report.value("detail.pipeline.class")))
    return found if isinstance(found, Defined) else None


def find_denoiser_class(graph: ModuleGraph, report: Report) -> Defined | None:
    """Return the class of the denoiser; None where neither report nor source establishes it.

    The report's own answer comes first. Where it is the pipeline itself, or nothing, the attributes that the denoising
    loop calls are looked up: one that the pipeline fills with an instance of a class of the source is the denoiser.
    """
    pipeline = pipeline_class(graph, report)
    if pipeline is None:
        return None
    name, module = report.value("denoiser.class"), report.value("detail.denoiser.module")
    if name and module and name != pipeline.name:
        found = resolve(graph, str(module), str(name)) or resolve(graph, pipeline.module, str(name))
        if isinstance(found, Defined) and _is_class(graph, found):
            return found
    held = _attributes(graph, pipeline)
    called = [str(report.value("denoiser.method"))] if name == pipeline.name else []
    candidates = [*called, *_called_in_loop(graph, report), *_USUAL]
    for attribute in dict.fromkeys(candidates):
        classes = set(held.get(attribute, ()))
        if len(classes) == 1:
            return classes.pop()
    return _around_loop(graph, report, pipeline)


def holding_attribute(graph: ModuleGraph, report: Report, denoiser: Defined) -> Kept | None:
    """Return where the pipeline keeps its denoiser; None where no attribute of it holds an instance, or several do."""
    pipeline = pipeline_class(graph, report)
    if pipeline is None:
        return None
    held = _attributes(graph, pipeline)
    called = [name for name in _called_in_loop(graph, report) if denoiser in held.get(name, ())]
    names = [name for name, classes in held.items() if classes == {denoiser}]
    chosen = called[:1] or [name for name in names if name in _USUAL][:1] or names
    return Kept(pipeline.module, pipeline.name, chosen[0]) if len(chosen) == 1 else None


def _around_loop(graph: ModuleGraph, report: Report, pipeline: Defined) -> Defined | None:
    """Return the module whose method is the denoising loop, where that is not the pipeline."""
    file, line = _place(report, "detail.scheduler.loop_location")
    if not file or not graph.source.exists(file):
        return None
    module = file.removesuffix(".py").replace("/", ".")
    for node in graph.source.tree(file).body:
        if isinstance(node, ast.ClassDef) and node.lineno <= line <= (node.end_lineno or 0):
            bases = " ".join(ast.unparse(base) for base in node.bases)
            if Defined(module, node.name) != pipeline and ("Module" in bases or "PreTrained" in bases):
                return Defined(module, node.name)
    return None


def loop_methods(graph: ModuleGraph, report: Report) -> tuple[str, ...]:
    """Return the methods of ``self`` that the denoising loop calls."""
    return tuple(dict.fromkeys(_called_in_loop(graph, report)))


def _place(report: Report, key: str) -> tuple[str, int]:
    file, _, line = str(report.value(key) or "").rpartition(":")
    return file, int(line) if line.isdigit() else 0


def _is_class(graph: ModuleGraph, origin: Defined) -> bool:
    info = graph.find(origin.module)
    return info is not None and isinstance(info.definitions.get(origin.name), ast.ClassDef)


def _called_in_loop(graph: ModuleGraph, report: Report) -> Iterator[str]:
    """Yield the attributes of ``self`` that the denoising loop calls."""
    file, line = _place(report, "detail.scheduler.loop_location")
    if not file or not graph.source.exists(file):
        return
    for node in walk_tree(graph.source.tree(file)):
        if isinstance(node, (ast.For, ast.While)) and node.lineno == line:
            for inner in walk_tree(node):
                if isinstance(inner, ast.Call) and is_own(inner.func):
                    yield inner.func.attr


def _attributes(graph: ModuleGraph, origin: Defined) -> dict[str, set[Defined]]:
    """Return the classes of the source whose instances a pipeline and its bases assign to attributes."""
    found: dict[str, set[Defined]] = {}
    for owner in owners_of(graph, origin):
        for name, classes in _assigned(graph, owner.info, owner.node).items():
            found.setdefault(name, classes)
    return found


def _assigned(graph: ModuleGraph, info: ModuleInfo, node: ast.ClassDef) -> dict[str, set[Defined]]:
    """Return those that the methods of one class assign."""
    found: dict[str, set[Defined]] = {}
    aliases: list[tuple[str, str]] = []
    for method in node.body:
        if not isinstance(method, ast.FunctionDef):
            continue
        scope = Scope.of(graph, info, method)
        made = {**dict(_made(graph, scope, method)), **_unpacked(graph, info, node, method)}
        for statement in walk_tree(method):
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                    if is_own(target):
                        if is_own(statement.value):
                            aliases.append((target.attr, statement.value.attr))
                        value = _class_of(graph, scope, statement.value, made)
                        value = value or _returned(graph, info, node, statement.value)
                        if value is not None:
                            found.setdefault(target.attr, set()).add(value)
    for name, source in aliases:
        found.setdefault(name, set()).update(found.get(source, set()))
    return found


def _returned(graph: ModuleGraph, info: ModuleInfo, owner: ast.ClassDef, value: ast.expr) -> Defined | None:
    """Return the class of ``self.make()``, where all that the method returns is an instance of it."""
    if not isinstance(value, ast.Call) or not is_own(value.func):
        return None
    name = value.func.attr
    maker = next((node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == name), None)
    if maker is None:
        return None
    scope = Scope.of(graph, info, maker)
    made = dict(_made(graph, scope, maker))
    returns = [node.value for node in walk_tree(maker) if isinstance(node, ast.Return)]
    classes = {_class_of(graph, scope, node, made) if node is not None else None for node in returns}
    return classes.pop() if len(classes) == 1 else None


def _unpacked(graph: ModuleGraph, info: ModuleInfo, owner: ast.ClassDef, method: ast.FunctionDef) -> dict[str, Defined]:
    """Return the classes of ``a, b = self.make()`` where ``make`` ends with ``return a, b``."""
    methods = {node.name: node for node in owner.body if isinstance(node, ast.FunctionDef)}
    found: dict[str, Defined] = {}
    for statement in walk_tree(method):
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Tuple):
            continue
        value = statement.value
        if not isinstance(value, ast.Call) or not is_own(value.func):
            continue
        maker = methods.get(value.func.attr)
        if maker is None:
            continue
        scope = Scope.of(graph, info, maker)
        made = dict(_made(graph, scope, maker))
        for node in walk_tree(maker):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
                for target, given in zip(statement.targets[0].elts, node.value.elts, strict=False):
                    known = _class_of(graph, scope, given, made)
                    if isinstance(target, ast.Name) and known is not None:
                        found[target.id] = known
    return found


def _made(graph: ModuleGraph, scope: Scope, method: ast.FunctionDef, depth: int = 0) -> Iterator[tuple[str, Defined]]:
    """Yield local names that hold an instance of a class of the source."""
    for statement in walk_tree(method):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            value = _class_of(graph, scope, statement.value, {}, depth)
            if value is not None:
                yield statement.targets[0].id, value


def _class_of(
    graph: ModuleGraph, scope: Scope, value: ast.expr, made: dict[str, Defined], depth: int = 0
) -> Defined | None:
    """Return the class of ``Class(…)``, ``Class.from_pretrained(…)``, ``make(…)`` or a name, each with ``.to(…)``."""
    if isinstance(value, ast.Name):
        return made.get(value.id)
    if not isinstance(value, ast.Call) or depth > _DEPTH:
        return None
    func = value.func
    if isinstance(func, ast.Attribute):
        if func.attr in ("to", "eval", "requires_grad_"):
            return _class_of(graph, scope, func.value, made, depth + 1)
        func = func.value if func.attr in ("from_pretrained", "from_config") else func
    if not isinstance(func, ast.Name):
        return None
    origin = scope.origin(func.id)
    if not isinstance(origin, Defined):
        return None
    if _is_class(graph, origin):
        return origin
    info = graph.find(origin.module)
    node = info.definitions.get(origin.name) if info is not None else None
    if info is None or not isinstance(node, ast.FunctionDef):
        return None
    inner = Scope.of(graph, info, node)
    locals_made = dict(_made(graph, inner, node, depth + 1))
    returned = {
        _class_of(graph, inner, found.value, locals_made, depth + 1)
        for found in walk_tree(node)
        if isinstance(found, ast.Return) and found.value is not None
    }
    return returned.pop() if len(returned) == 1 else None
