"""Data flow: definitions that reach a use, and everything that an expression depends on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from scaffold.check.model.python import FunctionModel, PythonFile
from scaffold.check.model.sides import Side
from scaffold.source.bindings import Binding

_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_MOST = 4000
_HOPS = 12
# A node, the function that it stands in (None at module level) and the file.
Place = tuple[FunctionModel | None, PythonFile, ast.AST]


class Origin:
    """What an expression depends on.

    Attributes:
        nodes: every node of it and of what it depends on through names, attributes of ``self``, arguments and results
            of functions of the side; each with the function it stands in (None at module level).
        open: parameters that no call on the side gives a value, ``(function, name)``.
        complete: whether nothing was left out.
    """

    def __init__(self) -> None:
        self.nodes: list[Place] = []
        self.open: list[tuple[FunctionModel, str]] = []
        self.complete = True

    @cached_property
    def strings(self) -> set[str]:
        """The string constants in it."""
        return {n.value for _, _, n in self.nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}

    @cached_property
    def attributes(self) -> set[str]:
        """The attributes read in it."""
        return {node.attr for _, _, node in self.nodes if isinstance(node, ast.Attribute)}

    @cached_property
    def names(self) -> set[str]:
        """The names in it, as they are written."""
        return {node.id for _, _, node in self.nodes if isinstance(node, ast.Name)}

    @cached_property
    def words(self) -> set[str]:
        """Names, attributes and strings together."""
        return self.strings | self.attributes | self.names

    def calls(self) -> Iterator[tuple[PythonFile, ast.Call]]:
        """Yield the calls in it."""
        for _, file, node in self.nodes:
            if isinstance(node, ast.Call):
                yield file, node


def origin(side: Side, function: FunctionModel, expr: ast.expr) -> Origin:
    """Return what an expression of a function of a side depends on; the answer is cached."""
    key = ("origin", function, expr)
    if key not in side.answers:
        side.answers[key] = _origin(side, function, expr)
    found: Origin = side.answers[key]
    return found


def _origin(side: Side, function: FunctionModel, expr: ast.expr) -> Origin:
    found = Origin()
    seen: set[tuple[ast.AST | None, ast.AST]] = set()
    pending: list[Place] = [(function, function.file, expr)]
    while pending:
        around, file, start = pending.pop()
        # Nodes hash by identity, which is faster than the hash of a function.
        at = (around.node if around is not None else None, start)
        if at in seen:
            continue
        seen.add(at)
        if len(found.nodes) > _MOST:
            found.complete = False
            break
        nodes, further, opened = _written_with(side, around, file, start)
        found.nodes += nodes
        found.open += opened
        pending += further
    return found


def _written_with(
    side: Side, around: FunctionModel | None, file: PythonFile, start: ast.AST
) -> tuple[list[Place], list[Place], list[tuple[FunctionModel, str]]]:
    """Return the nodes of an expression, the places that they depend on, and the open parameters among them."""
    key = ("written", around.node if around is not None else None, start)
    if key not in side.answers:
        nodes: list[Place] = []
        further: list[Place] = []
        opened: list[tuple[FunctionModel, str]] = []
        held: set[ast.AST] = set()
        for node in file.index.walk(start):
            if node in held:
                continue
            nodes.append((around, file, node))
            if isinstance(node, ast.Attribute) and (given := _given(side, around, file, node)):
                held.update(file.index.walk(node.value))
                further += given
                continue
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                further += _named(side, around, file, node, opened)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and around is not None:
                further += _attribute(side, around, node)
            elif isinstance(node, ast.Call) and around is not None:
                called = side.called(around, node)
                if called is not None:
                    further += [(called, called.file, r.value) for r in called.returns if r.value is not None]
        side.answers[key] = nodes, further, opened
    answer: tuple[list[Place], list[Place], list[tuple[FunctionModel, str]]] = side.answers[key]
    return answer


def _named(
    side: Side, around: FunctionModel | None, file: PythonFile, node: ast.Name, opened: list[tuple[FunctionModel, str]]
) -> Iterator[Place]:
    bindings = reaching(around, node) if around is not None else file.scopes.lookup(node.id, node)
    for binding in bindings:
        if binding.kind == "parameter":
            yield from _arguments(side, around, node.id, opened)
        elif binding.kind == "variable":
            parts = _returned_parts(side, around, file, binding.node) if binding.value is None else []
            if parts:
                yield from parts
                continue
            value = binding.value if binding.value is not None else bound_value(file, binding.node)
            if value is not None:
                inside = binding not in file.names.get(node.id, ())
                yield (around if inside else None), file, value
        elif binding.kind == "import" and binding.target is not None:
            definition = file.project.definition(binding.target)
            if definition is not None and definition[1].kind == "variable" and definition[1].value is not None:
                yield None, definition[0], definition[1].value


def _returned_parts(side: Side, around: FunctionModel | None, file: PythonFile, target: ast.AST) -> list[Place]:
    """Return the i-th element of what a function of the side returns, for the i-th name of ``a, b = f()``."""
    place = unpacked_at(file, target)
    if place is None or around is None or not isinstance(place[0], ast.Call):
        return []
    called = side.called(around, place[0])
    values = [item.value for item in called.returns] if called is not None else []
    found: list[Place] = []
    for value in values:
        if called is None or not isinstance(value, ast.Tuple) or place[1] >= len(value.elts):
            return []
        found.append((called, called.file, value.elts[place[1]]))
    return found


def _arguments(
    side: Side, around: FunctionModel | None, name: str, opened: list[tuple[FunctionModel, str]]
) -> Iterator[Place]:
    if around is None or name == around.bound:
        return
    given = False
    for caller, value in arguments(side, around, name):
        given = True
        yield caller, caller.file, value
    default = around.default(name)
    if default is not None:
        yield None, around.file, default
    if not given and default is None:
        opened.append((around, name))


def arguments(side: Side, function: FunctionModel, name: str) -> Iterator[tuple[FunctionModel, ast.expr]]:
    """Yield the arguments that calls on a side pass to a parameter, each with the calling function."""
    for caller, call in side.callers.get(function, []):
        for item in call.keywords:
            if item.arg == name:
                yield caller, item.value
        if name in function.positional:
            at = function.positional.index(name)
            if at < len(call.args) and not any(isinstance(item, ast.Starred) for item in call.args[: at + 1]):
                yield caller, call.args[at]


def _attribute(side: Side, around: FunctionModel, node: ast.Attribute) -> Iterator[Place]:
    cls = side.receiver(around)
    if cls is None or not (isinstance(node.value, ast.Name) and node.value.id == around.bound):
        return
    for assigned in cls.instance_attributes(node.attr):
        value = assigned.value if assigned.value is not None else bound_value(assigned.file, assigned.node)
        if value is not None:
            yield assigned.method, assigned.file, value
    attribute = cls.attribute(node.attr)
    if attribute is not None and attribute.value is not None:
        yield None, attribute.file, attribute.value


def _given(side: Side, around: FunctionModel | None, file: PythonFile, node: ast.Attribute) -> list[Place]:
    """Return what a constructor, or a function that returns its object, gets under the name of an attribute.

    ``Rollout(seed=a, step=b)`` depends on both, its ``step`` on ``b`` alone. Empty where the text does not tell.
    """
    bound, held = around.bound if around is not None else None, node.value
    kept = isinstance(held, ast.Attribute) and isinstance(held.value, ast.Name) and held.value.id == bound
    if not kept and not (isinstance(held, ast.Name) and held.id != bound):
        return []
    found: list[Place] = []
    pending: list[Place] = [(around, file, node.value)]
    for _ in range(_HOPS):
        if not pending:
            return found
        function, where, value = pending.pop()
        further: list[Place] = []
        if isinstance(value, ast.Constant) and value.value is None:
            continue
        if isinstance(value, ast.Call):
            further = [(function, where, item) for item in _by_name(where, value, node.attr)]
            found += further
            called = side.called(function, value) if function is not None and not further else None
            if called is not None:
                further = [(called, called.file, r.value) for r in called.returns if r.value is not None]
                pending += further
        elif isinstance(value, ast.Name):
            pending += (further := list(_named(side, function, where, value, [])))
        elif isinstance(value, ast.Attribute) and function is not None:
            pending += (further := list(_attribute(side, function, value)))
        if not further:
            return []
    return []


def _by_name(file: PythonFile, call: ast.Call, name: str) -> list[ast.expr]:
    """Return the arguments of a call under a name; positions count where a class of the tree lists its fields."""
    cls = file.project.class_of(file, call.func)
    fields = list(cls.fields) if cls is not None and "__init__" not in cls.methods else []
    at = fields.index(name) if name in fields else len(call.args)
    plain = at < len(call.args) and not any(isinstance(item, ast.Starred) for item in call.args[: at + 1])
    return [item.value for item in call.keywords if item.arg == name] + ([call.args[at]] if plain else [])


def bound_value(file: PythonFile, target: ast.AST) -> ast.expr | None:
    """Return what a target without a plain value is bound to: its part of an unpacked tuple, else the whole, the
    iterable of a loop, the manager of a ``with``, what ``+=`` adds."""
    inner: ast.AST = target
    path: list[int] = []
    for outer in file.index.ancestors(target):
        if isinstance(outer, (ast.Tuple, ast.List)):
            path.append(next((i for i, item in enumerate(outer.elts) if item is inner), -1))
        elif isinstance(outer, ast.Assign):
            return _part(outer.value, list(reversed(path)))
        elif isinstance(outer, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            return outer.value
        elif isinstance(outer, (ast.For, ast.AsyncFor, ast.comprehension)):
            return outer.iter
        elif isinstance(outer, ast.withitem):
            return outer.context_expr
        elif not isinstance(outer, ast.Starred):
            return None
        inner = outer
    return None


def _part(value: ast.expr, path: list[int]) -> ast.expr:
    for at in path:
        if not isinstance(value, (ast.Tuple, ast.List)) or not 0 <= at < len(value.elts):
            break
        if any(isinstance(item, ast.Starred) for item in value.elts):
            break
        value = value.elts[at]
    return value


def unpacked_at(file: PythonFile, target: ast.AST) -> tuple[ast.expr, int] | None:
    """Return ``(value, i)`` where a name is the i-th of ``a, b = value``."""
    parent = file.index.parent(target)
    if not isinstance(parent, (ast.Tuple, ast.List)) or any(isinstance(item, ast.Starred) for item in parent.elts):
        return None
    statement = file.index.parent(parent)
    if not isinstance(statement, ast.Assign) or parent not in statement.targets:
        return None
    return statement.value, next(i for i, item in enumerate(parent.elts) if item is target)


def reaching(function: FunctionModel, name: ast.Name) -> list[Binding]:
    """Return the bindings of a name that may reach its use; all of them where they belong to an outer scope."""
    found = function.reached.get(name)
    if found is None:
        found = function.reached[name] = _reaching(function, name)
    return found


def _reaching(function: FunctionModel, name: ast.Name) -> list[Binding]:
    file = function.file
    bindings = file.scopes.lookup(name.id, name)
    if len(bindings) < 2 or not all(file.index.contains(function.node, binding.node) for binding in bindings):
        return bindings
    use = (name.lineno, name.col_offset)
    before: list[tuple[tuple[int, int], Binding, ast.AST]] = []
    after: list[tuple[tuple[int, int], Binding, ast.AST]] = []
    for binding in bindings:
        statement = _statement(file, binding.node)
        inside = binding.kind != "parameter" and file.index.contains(statement, name)
        at = (getattr(binding.node, "lineno", 0), getattr(binding.node, "col_offset", 0))
        (after if inside or at > use else before).append((at, binding, statement))
    around = list(file.index.ancestors(name))
    loops = [node for node in around if isinstance(node, _LOOPS)]
    found: list[Binding] = []
    last: ast.AST | None = None
    for _, binding, statement in sorted(before, key=lambda item: item[0], reverse=True):
        if _exclusive(file, statement, name):
            continue
        found.append(binding)
        if binding.kind == "parameter" or _dominates(file, statement, around, function):
            last = statement if binding.kind != "parameter" else None
            break
    carried = []
    for _, binding, statement in after:
        # Carried around the innermost loop that holds both, unless the name is bound again before the use.
        loop = next((loop for loop in loops if file.index.contains(loop, statement)), None)
        if loop is not None and (last is None or not file.index.contains(loop, last)):
            carried.append(binding)
    return carried + found


def _statement(file: PythonFile, node: ast.AST) -> ast.AST:
    if isinstance(node, ast.stmt):
        return node
    return next((outer for outer in file.index.ancestors(node) if isinstance(outer, ast.stmt)), node)


def _dominates(file: PythonFile, statement: ast.AST, around: list[ast.AST], function: FunctionModel) -> bool:
    if isinstance(statement, _LOOPS):
        return statement in around
    for outer in file.index.ancestors(statement):
        if outer is function.node:
            return True
        if isinstance(outer, (*_BRANCHES, ast.ExceptHandler)) and outer not in around:
            return False
    return True


def _exclusive(file: PythonFile, statement: ast.AST, use: ast.AST) -> bool:
    """Whether a statement stands in the other branch of an ``if`` that the use stands in."""
    for outer in file.index.ancestors(statement):
        if isinstance(outer, ast.If) and file.index.contains(outer, use):
            first = any(file.index.contains(part, statement) for part in outer.body)
            second = any(file.index.contains(part, use) for part in outer.body)
            third = any(file.index.contains(part, use) for part in outer.orelse)
            return (first and third) or (not first and second)
    return False
