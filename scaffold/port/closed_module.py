"""Who calls whom in a module of which only some names are used from outside."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from scaffold.source.syntax import is_own, lineage, walk_tree, without_docstring

# Where an expression ends up: an argument by function and name, a local name, an attribute by its name alone.
Place = tuple[object, str]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_UNCLEAR = frozenset({"locals", "globals", "eval", "exec"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
ATTRIBUTE = "attribute"


@dataclass(eq=False)
class Function:
    """A function and the names that are bound in it; a class or the module has none that can be told about."""

    node: ast.AST
    parent: Function | None
    bound: Counter[str] = field(default_factory=Counter)
    stores: Counter[str] = field(default_factory=Counter)

    def of(self, name: str) -> Function | None:
        """Return where a name is bound; None for the module."""
        scope: Function | None = self
        while scope is not None and not scope.bound[name]:
            scope = scope.parent
            while scope is not None and isinstance(scope.node, ast.ClassDef):
                scope = scope.parent
        return scope


@dataclass(eq=False)
class Callee:
    """A function or constructor that is called by its name.

    Attributes:
        node: its definition.
        method: whether the first argument is the object.
        name: of the function, the method or the class.
        calls: every call of it.
        open: whether something else may call it.
    """

    node: ast.FunctionDef
    method: bool
    name: str
    calls: list[ast.Call] = field(default_factory=list)
    open: bool = False

    @property
    def parameters(self) -> list[ast.arg]:
        """Arguments that have names, the object left out."""
        spec = self.node.args
        return [*spec.posonlyargs, *spec.args][1 if self.method else 0 :] + spec.kwonlyargs

    def default(self, name: str) -> ast.expr | None:
        """Return what an argument is where a call does not give it."""
        spec = self.node.args
        positional = [*spec.posonlyargs, *spec.args]
        pairs = [
            *zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True),
            *zip(spec.kwonlyargs, spec.kw_defaults, strict=True),
        ]
        return next((value for argument, value in pairs if argument.arg == name), None)

    def given(self, call: ast.Call) -> dict[str, ast.expr] | None:
        """Return what a call gives, by name; None where that cannot be told."""
        spec = self.node.args
        positional = [argument.arg for argument in [*spec.posonlyargs, *spec.args][1 if self.method else 0 :]]
        unpacked = any(isinstance(argument, ast.Starred) for argument in call.args)
        if unpacked or len(call.args) > len(positional) or any(keyword.arg is None for keyword in call.keywords):
            return None
        found = dict(zip(positional, call.args, strict=False))
        found |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        named = {argument.arg for argument in self.parameters}
        return found if spec.kwarg is not None or set(found) <= named else None

    @property
    def others(self) -> set[str]:
        """Names that calls give and that have no argument of their own."""
        given = {keyword.arg for call in self.calls for keyword in call.keywords if keyword.arg is not None}
        return given - {argument.arg for argument in self.parameters}


@dataclass(frozen=True)
class Load:
    """Where a value is read.

    Attributes:
        node: what reads it.
        places: what it becomes a part of.
        formatted: whether it stands in a formatted string.
        owner: the class whose object it is an attribute of, where that is ``self``.
    """

    node: ast.expr
    places: tuple[Place, ...]
    formatted: bool
    owner: str = ""


class ClosedModule:
    """The facts.

    Args:
        tree: the module.
        entries: classes and functions that are used from outside.

    Attributes:
        clear: whether the text can be told about at all.
        callees: functions, private methods and constructors of the module, by name.
        loads: reads of local names, by function and name.
        attributes: reads of attributes, by name.
        stored: assignments of attributes, by name, each with its statement; None where it is another.
        stores: the classes that assign them to ``self``; an empty name where it is another object's.
        assigned: simple assignments of local names.
        references: names and attributes that anything reads.
    """

    def __init__(self, tree: ast.Module, entries: Iterable[str]) -> None:
        self.tree = tree
        self.clear = True
        self.callees: dict[str, Callee] = {}
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.loads: dict[Place, list[Load]] = defaultdict(list)
        self.attributes: dict[str, list[Load]] = defaultdict(list)
        self.stored: dict[str, list[ast.stmt | None]] = defaultdict(list)
        self.stores: dict[str, set[str]] = defaultdict(set)
        self.assigned: dict[Place, list[ast.stmt]] = defaultdict(list)
        self.functions: dict[ast.AST, Function] = {}
        self.texts: set[str] = set()
        self.asked: set[str] = set()  # classes that something asks an object's class about
        self.references: set[str] = set()
        self.declared: set[str] = set()  # names that classes bind in their bodies
        self._shared: set[str] = set()  # names that functions share by ``global`` and ``nonlocal``
        self._collect(set(entries))
        for statement in tree.body:
            self._visit(statement, None, (), False)
        self.clear = self.clear and not self._shared

    # What there is

    def _collect(self, entries: set[str]) -> None:
        self._opened = set(entries) | {self.constructor(name) for name in entries}
        names = Counter(getattr(node, "name", "") for node in self.tree.body)
        methods = Counter(
            inner.name for owner in self.classes.values() for inner in owner.body if isinstance(inner, ast.FunctionDef)
        )
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef) and names[node.name] == 1 and not node.decorator_list:
                self.callees[node.name] = Callee(node, False, node.name)
            if not isinstance(node, ast.ClassDef) or names[node.name] > 1:
                continue
            for inner in node.body:
                if not isinstance(inner, ast.FunctionDef) or inner.decorator_list or not inner.args.args:
                    continue
                if inner.name == "__init__" and not node.decorator_list and not node.keywords:
                    self.callees[node.name] = Callee(inner, True, node.name)
                elif inner.name.startswith("_") and not inner.name.endswith("__") and methods[inner.name] == 1:
                    self.callees.setdefault(f".{inner.name}", Callee(inner, True, inner.name))
        for node in self.classes.values():
            given = [
                inner.args.args[0].arg for inner in node.body if isinstance(inner, ast.FunctionDef) and inner.args.args
            ]
            if "cls" in given:  # it may make objects itself
                self._open(node.name)

    def closed(self, callee: Callee) -> bool:
        """Tell whether all calls of a function are known."""
        method = callee.node.name == callee.name and callee.method
        taken = callee.name in self._opened or (method and callee.name in self.texts | set(self.stored))
        return not callee.open and bool(callee.calls) and not taken

    def is_used(self, name: str) -> bool:
        """Tell whether a name is used from outside."""
        return name in self._opened

    # What it does

    def _visit(self, node: ast.AST | None, scope: Function | None, places: tuple[Place, ...], formatted: bool) -> None:
        if node is None:
            return
        if isinstance(node, _FUNCTIONS):
            self._function(node, scope, places)
        elif isinstance(node, ast.ClassDef):
            base = self._base(node)
            for part in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
                if part is base:
                    self.references.add(part.id)
                else:
                    self._visit(part, scope, (), False)
            inner = Function(node, scope)
            inner.bound.update(_bound(node.body))
            self.declared |= set(inner.bound)
            for statement in node.body:
                self._visit(statement, inner, (), False)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            self._assignment(node, scope)
        elif isinstance(node, ast.Call):
            self._call(node, scope, places, formatted)
        elif isinstance(node, ast.Name):
            self._name(node, scope, places, formatted)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Load):
                self.attributes[node.attr].append(Load(node, places, formatted, self._own(node, scope)))
                self.references.add(node.attr)
                self._open(f".{node.attr}")
            else:
                self.stored[node.attr].append(None)
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            made = node.attr.startswith(("__", "from_")) or owner not in self.classes
            if made or (scope is not None and scope.of(owner) is not None):
                self._visit(node.value, scope, places, formatted)
            else:
                self.references.add(owner)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            self._shared |= set(node.names)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                self.texts.add(node.value)
        else:
            formatted = formatted or isinstance(node, ast.JoinedStr)
            for child in ast.iter_child_nodes(node):
                self._visit(child, scope, places, formatted)

    def _base(self, node: ast.ClassDef) -> ast.Name | None:
        """Return the class of the module that a class derives from, where that is one and comes first."""
        own = [base for base in node.bases if isinstance(base, ast.Name) and base.id in self.classes]
        return own[0] if len(own) == 1 and node is self.classes.get(node.name) and own[0] is node.bases[0] else None

    def constructor(self, name: str) -> str:
        """Return the class whose constructor makes objects of a class."""
        node = self.classes.get(name)
        base = self._base(node) if node is not None else None
        if node is None or base is None or node.decorator_list:
            return name
        makes = any(isinstance(inner, ast.FunctionDef) and inner.name == "__init__" for inner in node.body)
        return name if makes else self.constructor(base.id)

    def _made_as(self, func: ast.expr, scope: Function | None) -> str:
        """Return the class whose constructor ``super().__init__`` means."""
        owner = scope.parent.node if scope is not None and scope.parent is not None else None
        if ast.unparse(func) != "super().__init__" or not isinstance(owner, ast.ClassDef):
            return ""
        base = self._base(owner)
        return self.constructor(base.id) if base is not None else ""

    @staticmethod
    def _own(node: ast.Attribute, scope: Function | None) -> str:
        """Return the class of which a method says ``self``."""
        method = scope.of("self") if scope is not None and is_own(node) else None
        owner = method.parent.node if method is not None and method.parent is not None else None
        return owner.name if isinstance(owner, ast.ClassDef) else ""

    def related(self, name: str, others: set[str]) -> bool:
        """Tell whether a class is one of others or derives from one."""
        return any(node.name in others for node in lineage(self.classes, name))

    def _open(self, name: str) -> None:
        name = self.constructor(name)
        if name in self.callees:
            self.callees[name].open = True

    def _function(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        scope: Function | None,
        places: tuple[Place, ...],
    ) -> None:
        spec = node.args
        for part in (*getattr(node, "decorator_list", ()), *spec.defaults, *(d for d in spec.kw_defaults if d)):
            self._visit(part, scope, places if isinstance(node, ast.Lambda) else (), False)
        inner = self.functions[node] = Function(node, scope)
        own = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *filter(None, (spec.vararg, spec.kwarg))]
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        inner.stores.update(_bound(body))
        inner.bound.update(inner.stores)
        inner.bound.update(argument.arg for argument in own)
        for part in body:
            self._visit(part, inner, places if isinstance(node, ast.Lambda) else (), False)

    def _assignment(self, node: ast.Assign | ast.AnnAssign, scope: Function | None) -> None:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        target = node.target if isinstance(node, ast.AnnAssign) else target
        places: tuple[Place, ...] = ()
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and node.value is not None:
            places = ((ATTRIBUTE, target.attr),)
            self.stored[target.attr].append(node)
            self.stores[target.attr].add(self._own(target, scope))
            self._visit(target.value, scope, (), False)
        elif isinstance(target, ast.Name) and scope is not None and node.value is not None:
            if not isinstance(scope.node, ast.ClassDef):
                places = ((scope.node, target.id),)
                self.assigned[places[0]].append(node)
        if not places:
            for other in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._visit(other, scope, (), False)
        self._visit(node.value, scope, places, False)

    def _call(self, node: ast.Call, scope: Function | None, places: tuple[Place, ...], formatted: bool) -> None:
        func, key = node.func, ""
        if isinstance(func, ast.Name) and (scope is None or scope.of(func.id) is None):
            key = self.constructor(func.id)
            self.references.add(func.id)
            self.clear = self.clear and key not in _UNCLEAR
            if key in ("isinstance", "issubclass") and len(node.args) == 2:
                self._visit(node.args[0], scope, places, formatted)
                self._asked(node.args[1], scope)
                return
            if key == "type" and len(node.args) != 1:
                self.clear = False
        elif isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self":
            key = f".{func.attr}"
        elif isinstance(func, ast.Attribute) and func.attr == "__init__":
            key = self._made_as(func, scope)
        elif isinstance(func, ast.Call) and ast.unparse(func.func) == "type":
            self.clear = False  # it makes another of its kind
        callee = self.callees.get(key)
        given = callee.given(node) if callee is not None else None
        if callee is not None:
            callee.open |= given is None or formatted  # trees do not say where in a string
            callee.calls.append(node)
            self.references.add(callee.name)
        if callee is None or key.startswith("."):
            if isinstance(func, ast.Attribute) and callee is not None:
                self._visit(func.value, scope, places, formatted)
            else:
                self._visit(func, scope, places, formatted)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            name = next((name for name, value in (given or {}).items() if value is argument), None)
            more = ((callee.node, name),) if callee is not None and name is not None else ()
            self._visit(argument, scope, (*places, *more), formatted)

    def _asked(self, node: ast.expr, scope: Function | None) -> None:
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        for part in parts:
            if isinstance(part, ast.Name) and part.id in self.classes:
                self.asked.add(part.id)
            else:
                self._visit(part, scope, (), False)

    def _name(self, node: ast.Name, scope: Function | None, places: tuple[Place, ...], formatted: bool) -> None:
        owner = scope.of(node.id) if scope is not None else None
        if owner is None:
            self.clear = self.clear and node.id not in _UNCLEAR
            self.references.add(node.id)
            self._open(node.id)
        elif isinstance(node.ctx, ast.Load):
            self._open(f".{node.id}")  # a method under another name
            self.loads[owner.node, node.id].append(Load(node, places, formatted))


def _bound(body: Iterable[ast.AST]) -> Iterator[str]:
    """Yield each binding of a name in statements, functions and classes inside of them left out."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        elif isinstance(node, ast.AugAssign):
            yield from _bound([node.target])
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        yield from _bound(ast.iter_child_nodes(node))


def only_returns(node: ast.FunctionDef) -> ast.expr | None:
    """Return the value of a function that does nothing else; None where it does something."""
    body = without_docstring(node.body)
    if not body or (len(body) == 1 and isinstance(body[0], ast.Pass)):
        return ast.Constant(None)
    if len(body) == 1 and isinstance(body[0], ast.Return):
        return body[0].value or ast.Constant(None)
    return None


def holds(node: ast.AST, *kinds: type[ast.AST]) -> bool:
    """Tell whether a tree has a node of these kinds."""
    return any(isinstance(inner, kinds) for inner in walk_tree(node))
