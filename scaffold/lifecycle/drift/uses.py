"""What a package uses of vllm-omni: imports, overridden and called methods, attributes, fields of its types."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeVar

from scaffold.files.parsing import parse
from scaffold.files.resources import RUNTIME
from scaffold.render.runtime import is_runtime
from scaffold.upstream.source import PACKAGE

Name = tuple[str, str]
"""A name of the source: module and name."""

Origin = tuple[Name, str | None, bool, tuple[str, ...]]
"""Owner, method (None: the owner itself), whether its argument instead of its result, and the attributes read."""

Defined = TypeVar("Defined", ast.ClassDef, ast.FunctionDef)


@dataclass(frozen=True)
class Use:
    """One use, at a line of the package.

    Attributes:
        kind: ``import``; of an upstream base class ``override``, ``call`` (through ``super()``), ``read`` and ``set``
            (an attribute of ``self``); ``field``, a chain of attributes of an upstream object; ``keywords``, an
            upstream class or function that is called.
        owner: the class, function or object; for ``field`` of a result, the class whose method returned it.
        name: method or attribute; for ``field`` the chain with dots.
        file: path of the package's file.
        line: from 1.
        method: for ``field``, the method of ``owner`` whose result is read; None if ``owner`` itself is read.
        positional: number of positional arguments; -1 where a star argument hides it.
        keywords: names of keyword arguments.
        given: for ``field``, whether the argument of the method is read instead of its result.
        typed: for ``override``, whether the method annotates its argument.
    """

    kind: str
    owner: Name
    name: str
    file: str
    line: int
    method: str | None = None
    positional: int = 0
    keywords: tuple[str, ...] = ()
    given: bool = False
    typed: bool = True


def uses(files: Mapping[str, str]) -> tuple[Use, ...]:
    """Return every use in the Python files of a package, by path; a file that does not parse has none."""
    found: dict[tuple[object, ...], Use] = {}
    modules = []
    for path, text in sorted(files.items()):
        if not path.endswith(".py"):
            continue
        try:
            tree = parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        modules.append(_Module(path, tree))
    shared = _reached(modules)
    for module in modules:
        if _is_shared(module.path) and module not in shared.values():
            continue
        for use in [*module.uses(), *(module.uses_below(shared) if not _is_shared(module.path) else ())]:
            found.setdefault((use.kind, use.owner, use.name, use.method, use.given, use.keywords, use.file), use)
    return tuple(found.values())


def _reached(modules: Sequence[_Module]) -> dict[str, _Module]:
    """Return the modules of the runtime that the package imports, itself or through others of them, by name."""
    runtime = {PurePosixPath(module.path).stem: module for module in modules if _is_shared(module.path)}
    found: dict[str, _Module] = {}
    waiting = [module for module in modules if not _is_shared(module.path)]
    while waiting:
        new = waiting.pop().of_runtime & runtime.keys() - found.keys()
        found |= {name: runtime[name] for name in new}
        waiting += [runtime[name] for name in new]
    return found


def _is_shared(path: str) -> bool:
    """Whether a file is the runtime's, beside a package or installed."""
    return is_runtime(path) or path.startswith(f"{RUNTIME}/")


class _Module:
    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path = path
        self.tree = tree
        self.imported: dict[str, Name] = {}
        self.bases: dict[ast.AST, Name] = {}
        """The upstream base of the class that a method belongs to."""

    @property
    def of_runtime(self) -> set[str]:
        """Names of the runtime's modules that this one imports, and of what it imports from the runtime as a whole."""
        names: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.level or RUNTIME in (node.module or "")):
                inner = (node.module or "").rpartition(RUNTIME)[2].strip(".")
                names |= {inner.partition(".")[0]} if inner else {alias.name for alias in node.names}
        return names

    def uses_below(self, shared: Mapping[str, _Module]) -> Iterator[Use]:
        """Yield the uses by the runtime's classes and functions on behalf of this module's subclasses of upstream
        classes.

        Args:
            shared: the runtime's modules, by name.
        """
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.ClassDef):
                continue
            bases = [self.imported[name] for base in node.bases if (name := _named(base)) in self.imported]
            if not bases:
                continue
            line = list(self._line(node, shared))
            own = [{item.name for item in cls.body if isinstance(item, ast.FunctionDef)} for _, cls in line]
            names = set().union(*own)
            for number, (module, cls) in enumerate(line):
                later = set().union(*own[number + 1 :])
                for use in module._of_base(cls, bases[0], names):
                    # A super() call that resolves within the runtime does not use upstream.
                    if use.kind != "call" or use.name not in later:
                        yield use
            for call in ast.walk(node):
                if isinstance(call, ast.keyword) and call.arg == "result":
                    for module, function in self._of_runtime(call.value, shared, ast.FunctionDef):
                        known = {function.args.args[0].arg: (bases[0], "forward", False, ())}
                        yield from module._fields(function, known)

    def _line(self, node: ast.ClassDef, shared: Mapping[str, _Module]) -> Iterator[tuple[_Module, ast.ClassDef]]:
        """Yield the runtime's classes among a class's ancestors, nearest first."""
        for base in node.bases:
            for module, cls in self._of_runtime(base, shared, ast.ClassDef):
                yield module, cls
                yield from module._line(cls, shared)

    def _of_runtime(
        self, node: ast.expr, shared: Mapping[str, _Module], kind: type[Defined]
    ) -> Iterator[tuple[_Module, Defined]]:
        """Yield the runtime's class or function that a name or ``module.name`` in this module refers to."""
        first: str
        path: tuple[str, ...]
        first, path = _chain(node) or ("", ())
        places: dict[str, tuple[str, ...]] = {}
        if self in shared.values():
            places = {item.name: (PurePosixPath(self.path).stem, item.name) for item in self.tree.body
                      if isinstance(item, ast.ClassDef | ast.FunctionDef)}  # fmt: skip
        for item in self.tree.body:
            if isinstance(item, ast.ImportFrom) and (item.level or RUNTIME in (item.module or "")):
                inner = (item.module or "").rpartition(RUNTIME)[2].strip(".")
                for alias in item.names:
                    places[alias.asname or alias.name] = (inner, alias.name) if inner else (alias.name,)
        where = (*places.get(first, ()), *path)
        if len(where) == 2 and where[0] in shared:
            module = shared[where[0]]
            yield from ((module, item) for item in module.tree.body if isinstance(item, kind) and item.name == where[1])

    def uses(self) -> Iterator[Use]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and _is_upstream(node.module or ""):
                for alias in node.names:
                    name = (node.module or "", alias.name)
                    self.imported[alias.asname or alias.name] = name
                    yield Use("import", name, alias.name, self.path, node.lineno)
        if not self.imported:
            return
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                yield from self._of_class(node)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self._fields(node)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.imported:
                yield self._called("keywords", self.imported[node.func.id], node.func.id, node)

    def _called(self, kind: str, owner: Name, name: str, node: ast.Call) -> Use:
        star = any(isinstance(argument, ast.Starred) for argument in node.args)
        keywords = tuple(sorted(keyword.arg for keyword in node.keywords if keyword.arg))
        return Use(kind, owner, name, self.path, node.lineno, None, -1 if star else len(node.args), keywords)

    def _of_class(self, node: ast.ClassDef) -> Iterator[Use]:
        bases = [
            self.imported[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in self.imported
        ]
        if not bases:
            return
        yield from self._of_base(node, bases[0])

    def _of_base(self, node: ast.ClassDef, base: Name, also: Set[str] = frozenset()) -> Iterator[Use]:
        """Yield the uses of ``base`` by a class derived from it; ``also`` are methods of other classes in the line."""
        methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
        own = {method.name for method in methods} | also
        if not also:
            self.bases |= dict.fromkeys(methods, base)
        for item in node.body:
            targets = item.targets if isinstance(item, ast.Assign) else []
            if isinstance(item, ast.AnnAssign):
                targets = [item.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield Use("set", base, target.id, self.path, item.lineno)
        for method in methods:
            yield Use("override", base, method.name, self.path, method.lineno, typed=not also)
            if also:
                first = [argument.arg for argument in [*method.args.posonlyargs, *method.args.args][1:2]]
                yield from self._fields(method, dict.fromkeys(first, (base, method.name, True, ())))
            for inner in ast.walk(method):
                if isinstance(inner, ast.Call) and _is_super(inner.func):
                    assert isinstance(inner.func, ast.Attribute)
                    yield self._called("call", base, inner.func.attr, inner)
                elif isinstance(inner, ast.Attribute) and _is_self(inner.value) and inner.attr not in own:
                    kind = "read" if isinstance(inner.ctx, ast.Load) else "set"
                    yield Use(kind, base, inner.attr, self.path, inner.lineno)

    def _fields(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, first: Mapping[str, Origin] | None = None
    ) -> Iterator[Use]:
        """Follow annotated arguments, results of ``super()`` and names bound to their attributes."""
        known: dict[str, Origin] = dict(first or {})
        arguments = function.args
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            annotation = argument.annotation
            if isinstance(annotation, ast.Name) and annotation.id in self.imported:
                known[argument.arg] = (self.imported[annotation.id], None, False, ())
        base = self.bases.get(function)
        for node in _in_order(function):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name, value = node.targets[0].id, node.value
                chain = _chain(value)
                known.pop(name, None) if chain is None or chain[0] != name else None
                if chain is not None and chain[0] in known:
                    owner, method, given, path = known[chain[0]]
                    known[name] = (owner, method, given, path + chain[1])
                elif base and isinstance(value, ast.Call) and _is_super(value.func):
                    assert isinstance(value.func, ast.Attribute)
                    known[name] = (base, value.func.attr, False, ())
            elif isinstance(node, ast.Attribute):
                chain = _chain(node)
                if chain is not None and chain[0] in known:
                    owner, method, given, path = known[chain[0]]
                    full = path + chain[1]
                    yield Use("field", owner, ".".join(full), self.path, node.lineno, method, given=given)


def _named(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _in_order(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in source order; an assignment comes after the expressions it reads."""
    for child in ast.iter_child_nodes(function):
        yield from _in_order(child)
    yield function


def _chain(node: ast.expr) -> tuple[str, tuple[str, ...]] | None:
    """Return the first name and the attributes of ``a.b.c``."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return (node.id, tuple(parts)) if isinstance(node, ast.Name) else None


def _is_upstream(module: str) -> bool:
    return module == PACKAGE or module.startswith(PACKAGE + ".")


def _is_super(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "super"
    )


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
