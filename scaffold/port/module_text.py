"""The text of the port: imports, our own layers, the ported definitions in an order in which they can be executed."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable

import libcst as cst

from scaffold.port.blocks import code
from scaffold.port.classes import ClassEntry
from scaffold.port.engine import LOADER, Engine
from scaffold.port.layers import ENGINES
from scaffold.port.names import Defined, Scope
from scaffold.port.statements import Statements
from scaffold.port.supports import support_text
from scaffold.source.syntax import walk_tree


def module_text(engine: Engine, header: str) -> str:
    """Return the whole module, not yet formatted."""
    texts: dict[Defined, str] = {}
    while len(texts) < len(engine.order):  # a class's decorator may be the first that names something
        texts = {origin: _definition(engine, origin) for origin in list(engine.order)}
        engine.run()
    left = {name for text in texts.values() for name in _asked_for(text)}
    for origin in engine.ported:
        texts[origin] += "".join(_joined(engine, engine.classes[origin], left))
    ordered = _executable_order(engine, texts)
    supports = [support_text(module, names) for module, names in sorted(engine.supports.items())]
    parts = [f'"""{header}"""', "from __future__ import annotations", "\n".join(_imports(engine))]
    return "\n\n\n".join([*parts, *supports, *(texts[origin] for origin in ordered if texts[origin])]) + "\n"


def _asked_for(text: str) -> Iterable[str]:
    """Yield the attributes that a definition reads, also by a text such as that of ``getattr``, loaders left out."""
    pending: list[ast.AST] = [ast.parse(text)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef) and node.name == LOADER:
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield from (
                given.value for given in node.args if isinstance(given, ast.Constant) and type(given.value) is str
            )
        pending += ast.iter_child_nodes(node)


def _joined(engine: Engine, entry: ClassEntry, left: set[str]) -> Iterable[str]:
    """Yield a property for each fused layer of a class that code of the port still asks for by its upstream name."""
    for name, held in entry.layers.items():
        if held.built.fused and name in left and name.isidentifier():
            made = engine.support("joined_layer", "JoinedLayer")
            parts = ", ".join(f"self.{part}" for part, _ in held.built.parts)
            reads = [read for read in sorted(held.built.reads) if engine.is_read(entry, name, read)]
            kept = "".join(f", {read}=self.{name}_{read}" for read in reads)
            own = f'        if "{name}" in self._modules:\n            return self._modules["{name}"]\n'
            yield f"\n\n    @property\n    def {name}(self):\n{own if entry.stores[name] > 1 else ''}"
            yield f"        return {made}(({parts}), {held.built.pairs}{kept})\n"


def _imports(engine: Engine) -> Iterable[str]:
    for alias, (module, name) in sorted(engine.libraries.items()):
        if name is not None:
            yield f"from {module} import {name}" + ("" if name == alias else f" as {alias}")
        elif alias == module.partition(".")[0]:
            yield f"import {alias}"
        else:
            yield f"import {module} as {alias}"


def _definition(engine: Engine, origin: Defined) -> str:
    if origin in engine.ported:
        return _class(engine, engine.classes[origin])
    result = engine.results.get(origin)
    if result is None:
        return ""
    name = engine.order[origin]
    if isinstance(result, cst.FunctionDef):
        result = result.with_changes(name=cst.Name(name))
    text = code(result.with_changes(leading_lines=[])).strip()
    return text if name == origin.name or isinstance(result, cst.FunctionDef) else name + text.removeprefix(origin.name)


def _class(engine: Engine, entry: ClassEntry) -> str:
    node = entry.definition.node
    assert isinstance(node, cst.ClassDef)
    body: list[str] = []
    docstring = ast.get_docstring(entry.twin)
    if docstring:
        body.append(_docstring(entry))
    methods = engine.ported[entry.key]
    for index, (_, twin) in enumerate(entry.statements):
        if isinstance(twin, ast.FunctionDef) and twin.name in methods:
            if entry.methods[twin.name][1] is twin or twin.decorator_list:  # a getter and its setter
                body.append(code(methods[twin.name].with_changes(leading_lines=[])))
        elif index in engine.lines.get(entry.key, {}):
            body += [code(line.with_changes(leading_lines=[])) for line in engine.lines[entry.key][index]]
    if "forward_native" in methods and "forward" not in methods:
        body.append("def forward(self, *args, **kwargs):\n    return self.forward_native(*args, **kwargs)\n")
    if any(isinstance(base, str) and base.endswith(".ConfigMixin") for base in entry.bases):
        body.insert(1 if docstring else 0, 'config_name = "config.json"\n')
    bases = [
        engine.order.get(base, base.name) if isinstance(base, Defined) else _library(engine, base)
        for base in entry.bases
    ]
    kept = list(dict.fromkeys(base for base in bases if base))
    if "nn.Module" in kept and len(kept) > 1 and any(isinstance(base, Defined) for base in entry.bases):
        kept.remove("nn.Module")
        kept.append("nn.Module")
    scope = Scope(engine.graph, engine.files.info(entry.key.module))
    statements = Statements(engine, scope, entry, entry.twin)
    decorators = []
    for decorator in node.decorators:
        statements.expressions.clear()
        changed = statements.expressions.rewrite(decorator.decorator)
        if not statements.expressions.problems:
            decorators.append(f"@{code(changed)}\n")
    inner = "".join(text if text.endswith("\n") else text + "\n" for text in body) or "pass\n"
    head = f"class {engine.order[entry.key]}({', '.join(kept)}):\n" if kept else f"class {engine.order[entry.key]}:\n"
    return ("".join(decorators) + head + textwrap.indent(inner, "    ", _not_inside_text(inner))).strip()


def _library(engine: Engine, base: str) -> str:
    """Return how a base class outside of the source is named; what `BASES` gives stands for itself."""
    if base in ("", "object"):
        return ""
    if base in ("nn.Module", "torch.nn.Module"):
        return "nn.Module"
    module, _, name = base.rpartition(".")
    if module.partition(".")[0] in ENGINES:  # what the engine mixes in serves inference
        return ""
    return engine.library(module, name) if module else base


def _docstring(entry: ClassEntry) -> str:
    node = entry.definition.node
    assert isinstance(node, cst.ClassDef)
    assert isinstance(node.body, cst.IndentedBlock)
    return code(node.body.body[0].with_changes(leading_lines=[]))


def _not_inside_text(text: str):  # type: ignore[no-untyped-def]
    """Return a test of lines for `textwrap.indent`: lines inside of strings over several lines stay as they are."""
    inside: set[int] = set()
    for node in walk_tree(ast.parse(text)):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and (node.end_lineno or 0) > node.lineno:
            if isinstance(node, ast.JoinedStr) or isinstance(node.value, str):
                inside.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
    counter = iter(range(1, text.count("\n") + 2))

    def predicate(line: str) -> bool:
        return next(counter) not in inside and bool(line.strip())

    return predicate


def _executable_order(engine: Engine, texts: dict[Defined, str]) -> list[Defined]:
    """Return the definitions so that bases, decorators, defaults and values come before what uses them."""
    by_name = {name: origin for origin, name in engine.order.items()}
    needs = {origin: _needs(text, by_name) for origin, text in texts.items()}
    found: list[Defined] = []
    active: set[Defined] = set()

    def add(origin: Defined) -> None:
        if origin in found or origin in active:
            return
        active.add(origin)
        for needed in sorted(needs[origin], key=lambda o: position[o]):
            add(needed)
        found.append(origin)

    position = {
        origin: (definition.file, definition.twin.lineno) if definition else ("", 0)
        for origin in engine.order
        for definition in [engine.files.definition(origin.module, origin.name)]
    }
    for origin in sorted(engine.order, key=lambda o: position[o]):
        add(origin)
    return found


def _needs(text: str, by_name: dict[str, Defined]) -> set[Defined]:
    """Return the definitions that are used while a definition is executed; functions that it calls are, too."""
    if not text:
        return set()
    names: set[str] = set()
    for statement in ast.parse(text).body:
        for node in _executed(statement):
            names |= {found.id for found in walk_tree(node) if isinstance(found, ast.Name)}
    return {by_name[name] for name in names if name in by_name}


def _executed(node: ast.stmt) -> list[ast.AST]:
    if isinstance(node, ast.FunctionDef):
        return [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
    if isinstance(node, ast.ClassDef):
        inner = [found for statement in node.body for found in _executed(statement)]
        return [*node.bases, *node.decorator_list, *inner]
    if isinstance(node, ast.AnnAssign):
        return [node.value] if node.value is not None else []
    return [node]
