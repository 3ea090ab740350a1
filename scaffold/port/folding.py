"""A port without what serves inference alone: sizes of groups that have one member, options that nobody gives.

Names that are bound once to a constant are their constants, conditions of constants are gone with the sides that are
never taken, and so are arguments that nothing reads or that every call gives the same. What the text does not show
stays: a function whose calls are not all known, a name that is bound twice, an expression that may do something.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from scaffold.port.closed_module import ATTRIBUTE, Callee, ClosedModule, Place, holds, only_returns
from scaffold.port.text_edits import TextEdits
from scaffold.source.syntax import is_docstring, is_own, walk_tree

# What the engine's layers are told and plain ones are not; training has neither.
ENGINES_OWN = ("quant_config", "prefix")
_ROUNDS = 30
_OPEN = object()
_PURE_CALLS = ("isinstance", "hasattr", "getattr", "bool", "str", "tuple")
_PURE = (ast.Name, ast.Constant, ast.Attribute, ast.JoinedStr, ast.FormattedValue, ast.IfExp, ast.BoolOp, ast.UnaryOp,
         ast.BinOp, ast.Compare, ast.Tuple, ast.List, ast.Lambda)  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}
# What comparing one device with a number of parts, which is one at least, tells; and the other way round.
_LEFT: dict[type[ast.cmpop], bool] = {ast.Gt: False, ast.LtE: True}
_RIGHT: dict[type[ast.cmpop], bool] = {ast.Lt: False, ast.GtE: True}
_BUILTINS: dict[str, Callable[..., Any]] = {"int": int, "bool": bool, "max": max, "min": min}
_ATOMS = (ast.Name, ast.Constant, ast.Attribute, ast.Call, ast.Subscript)


def fold(text: str, entry: str, used: Iterable[str], answered: Iterable[str]) -> str:
    """Return the module without what its constants decide and nobody reads.

    Args:
        text: the module.
        entry: its class that is made from outside, never with `ENGINES_OWN`.
        used: other names of it that are used from outside.
        answered: names that hold what the surroundings answered, those of attributes behind a dot. What is divided by
            a number of devices that is one stays what it is, because parts are shared out whole.
    """
    known, first, tree = Answered(answered), None, ast.parse(text)
    for _ in range(_ROUNDS):
        module = ClosedModule(tree, used)
        if not module.clear:
            return text
        first = module.references | module.asked if first is None else first
        changed = _Round(text, module, entry, known, first).run()
        if changed == text:
            break
        try:
            tree = ast.parse(changed)
        except SyntaxError:
            break  # a layout that the changes of a text do not know
        text = changed
    return text


class Answered:
    """Names that hold what the surroundings answered, and those that hold a constant because of what was folded."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = set(names)
        self.constant = set(self.names)

    def note(self, name: str, value: object) -> None:
        """Note what a name is given; numbers are folded where the surroundings answered them alone."""
        self.constant.add(name)
        if type(value) is int:
            self.names.add(name)


class _Round:
    """One look at the module, and what follows of it."""

    def __init__(self, text: str, module: ClosedModule, entry: str, answered: Answered, first: set[str]) -> None:
        self.module, self.answered, self.first = module, answered, first
        self.entry = module.constructor(entry)
        self.edits = TextEdits(text, module.tree)
        self.known: dict[ast.AST, Any] = {}  # reads of what has one value
        self.dead: set[Place] = set()
        self.gone: set[ast.AST] = set()
        self.callees: dict[ast.AST, Callee] = {}
        for callee in module.callees.values():
            if callee.name != self.entry and module.closed(callee):
                self.callees |= {callee.node: callee}
        self.made = module.callees.get(self.entry)

    def run(self) -> str:
        """Return the text as it is afterwards; what nothing reads goes where nothing else is to be done."""
        self._constants()
        self._block(self.module.tree.body)
        if not self.edits:
            self._unread()
            for callee in self._changeable():
                self._without_arguments(callee)
            self._block(self.module.tree.body)
        return self.edits.applied()

    # Names of one value

    def _constants(self) -> None:
        for place, nodes in self.module.assigned.items():
            scope = self.module.functions[place[0]]  # type: ignore[index]
            if len(nodes) == scope.bound[place[1]] == 1:
                self._bind(place, nodes[0].value)  # type: ignore[attr-defined]
        self._empty_lists()
        for callee in self._changeable():
            for argument in callee.parameters:
                values = list(self._given(callee, argument.arg))
                if values and not self.module.functions[callee.node].stores[argument.arg]:
                    first = values[0]
                    if all(_same(first, value) for value in values):
                        self._bind((callee.node, argument.arg), first)
        for name, stores in self.module.stored.items():
            if f".{name}" not in self.answered.constant or name in self.module.texts | self.module.declared:
                continue
            values = [store.value if isinstance(store, (ast.Assign, ast.AnnAssign)) else None for store in stores]
            if values and all(value is not None and _same(values[0], value) for value in values):
                value = _plain(values[0])
                for load in self.module.attributes[name] if value is not _OPEN else ():
                    if not load.formatted and self.module.related(load.owner, self.module.stores[name] - {""}):
                        self.known[load.node] = value

    def _empty_lists(self) -> None:
        """A list that is made empty and only asked for has nothing in it."""
        asked = [node for node in walk_tree(self.module.tree) if isinstance(node, ast.If)]
        for place, nodes in self.module.assigned.items():
            if len(nodes) != 1 or self.module.functions[place[0]].bound[place[1]] != 1:  # type: ignore[index]
                continue
            value = nodes[0].value  # type: ignore[attr-defined]
            if isinstance(value, ast.List) and not value.elts:
                loads = {load.node for load in self.module.loads[place]}
                tests = [node for node in asked if node.test in loads]
                inside = {inner for node in tests for part in node.body for inner in walk_tree(part)}
                if loads <= {node.test for node in tests} | inside:
                    self.known |= {node.test: False for node in tests}

    def _changeable(self) -> Iterator[Callee]:
        yield from self.callees.values()
        if self.made is not None and not self.made.open:
            yield self.made

    def _given(self, callee: Callee, name: str) -> Iterator[ast.expr | None]:
        """Yield what each call gives an argument; the class that is made from outside never gets the engine's own."""
        default = callee.default(name)
        if callee is self.made:
            yield default if name in ENGINES_OWN else None
        for call in callee.calls:
            yield (callee.given(call) or {}).get(name, default)

    def _bind(self, place: Place, node: ast.expr | None) -> None:
        value = _plain(node)
        if value is _OPEN or (type(value) is int and place[1] not in self.answered.names):
            return
        for load in self.module.loads[place]:
            if load.formatted:
                continue
            self.known[load.node] = value

    # What nothing reads

    def _unread(self) -> None:
        module, found = self.module, set[Place]()
        for callee in self._changeable():
            for argument in callee.parameters:
                own = callee is not self.made or argument.arg in ENGINES_OWN
                values = [value for value in self._given(callee, argument.arg) if value is not None]
                if own and not module.functions[callee.node].stores[argument.arg] and all(map(self._pure, values)):
                    found.add((callee.node, argument.arg))
            rest = callee.node.args.kwarg
            if rest is not None and callee is not self.made and not module.loads[callee.node, rest.arg]:
                for name in callee.others:
                    if all(value is None or self._pure(value) for value in self._given(callee, name)):
                        found.add((callee.node, name))
        for place, nodes in module.assigned.items():
            if len(nodes) == module.functions[place[0]].bound[place[1]] and all(map(self._droppable, nodes)):  # type: ignore[index]
                found.add(place)
        for name, stores in module.stored.items():
            own = f".{name}" in self.answered.names or name in ENGINES_OWN
            if own and name not in module.texts | module.declared and all(map(self._droppable, stores)):
                found.add((ATTRIBUTE, name))
        while True:
            read = {place for place in found if any(not found & set(load.places) for load in self._reads(place))}
            if not read:
                break
            found -= read
        self.dead = found
        for place in found:
            owner, name = place
            self.gone |= set(module.stored[name] if owner == ATTRIBUTE else module.assigned.get(place, ()))  # type: ignore[arg-type]

    def _reads(self, place: Place) -> list[Any]:
        return self.module.attributes[place[1]] if place[0] == ATTRIBUTE else self.module.loads[place]

    def _droppable(self, node: ast.stmt | None) -> bool:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        return value is not None and node is not None and self._pure(value) and self.edits.alone(node)

    def _pure(self, node: ast.expr) -> bool:
        """Tell whether working an expression out does nothing."""
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.keywords:
                return False
            callee = self.module.callees.get(node.func.id)
            value = only_returns(callee.node) if callee is not None and not callee.method else None
            if node.func.id not in _PURE_CALLS and (value is None or holds(value, ast.Call)):
                return False
            return all(map(self._pure, node.args)) and (value is None or self._pure(value))
        if not isinstance(node, _PURE):
            return False
        return isinstance(node, ast.Lambda) or all(
            self._pure(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)
        )

    def _without_arguments(self, callee: Callee) -> None:
        wanted = {argument.arg for argument in callee.parameters} | callee.others
        names = {name for name in wanted if (callee.node, name) in self.dead}
        spec, edits = callee.node.args, self.edits
        if not names or spec.posonlyargs:
            return
        if spec.vararg is not None:
            return
        parameters = [*spec.args, *spec.kwonlyargs]
        spans = [(edits.start(a), edits.end(callee.default(a.arg) or a)) for a in parameters]
        labels = [argument.arg for argument in parameters]
        if spec.kwonlyargs:
            first = len(spec.args)
            opening = spans[first - 1][1] if first else edits.opening(callee.node)
            star = edits.star(opening, spans[first][0])
            if star is None:
                return
            spans.insert(first, star)
            labels.insert(first, "*")
            if all(argument.arg in names for argument in spec.kwonlyargs):
                names = {*names, "*"}
        if spec.kwarg is not None:
            spans.append((edits.start(spec.kwarg) - 2, edits.end(spec.kwarg)))
            labels.append("**")
            if callee.others <= names and not self.module.loads[callee.node, spec.kwarg.arg]:
                names = {*names, "**"}
        calls = []
        for call in callee.calls:
            given = callee.given(call) or {}
            items: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
            values = {id(value): name for name, value in given.items()}
            named = [values[id(item.value if isinstance(item, ast.keyword) else item)] for item in items]
            calls.append(([(edits.start(item), edits.end(item)) for item in items], named))
        if not edits.separated(spans) or not all(edits.separated(places) for places, _ in calls):
            return
        edits.without(spans, [index for index, name in enumerate(labels) if name in names])
        for places, named in calls:
            dropped = [index for index, name in enumerate(named) if name in names]
            if dropped:
                edits.without(places, dropped)
        for call in callee.calls:
            given = callee.given(call) or {}
            self.gone |= {value for name, value in given.items() if name in names}

    # Values

    def _value(self, node: ast.expr) -> Any:
        """Return the plain value of an expression, ``_OPEN`` where it has none."""
        if node in self.known:
            return self.known[node]
        if isinstance(node, ast.Constant):
            return _plain(node)
        if isinstance(node, ast.IfExp):
            asked = self._value(node.test)
            return _OPEN if asked is _OPEN else self._value(node.body if asked else node.orelse)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._value(node.operand)
            return _OPEN if inner is _OPEN else not inner
        if isinstance(node, ast.BoolOp):
            sides = [self._value(value) for value in node.values]
            ends = isinstance(node.op, ast.Or)
            if sides[0] is not _OPEN and bool(sides[0]) is ends:
                return sides[0]
            return sides[-1] if _OPEN not in sides and all(bool(side) is not ends for side in sides[:-1]) else _OPEN
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            compare = _COMPARE.get(type(node.ops[0]))
            left, right = self._value(node.left), self._value(node.comparators[0])
            for one, other, tells in (
                (node.left, node.comparators[0], _LEFT),
                (node.comparators[0], node.left, _RIGHT),
            ):
                if self._is(1, one) and _counts(other) and type(node.ops[0]) in tells:
                    return tells[type(node.ops[0])]
            if compare is None or left is _OPEN or right is _OPEN:
                return _OPEN
            try:
                return compare(left, right)
            except TypeError:
                return _OPEN
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and self._is(1, node.right):
            return 0 if self._pure(node.left) else _OPEN
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and self._is(0, node.left):
            return 0 if self._pure(node.right) else _OPEN
        if isinstance(node, ast.Call) and (isinstance(node.func, ast.Name) or is_own(node.func)):
            return self._called(node, node.func.id if isinstance(node.func, ast.Name) else f".{node.func.attr}")
        return _OPEN

    def _called(self, node: ast.Call, name: str) -> Any:
        values = [self._value(argument) for argument in node.args]
        if name in _BUILTINS and values and not node.keywords and all(type(value) is int for value in values):
            return _BUILTINS[name](*values) if len(values) > 1 or name in ("int", "bool") else _OPEN
        if name == "isinstance" and len(node.args) == 2 and isinstance(node.args[1], ast.Name):
            return False if self._never_made(node.args[1].id) and self._pure(node.args[0]) else _OPEN
        callee = self.module.callees.get(name)
        if callee is None or callee.name in self.module.classes or node.keywords:
            return _OPEN
        if not all(map(self._pure, node.args)) or (callee.method and not self.module.closed(callee)):
            return _OPEN
        returned = only_returns(callee.node)
        return _plain(returned) if callee.given(node) is not None else _OPEN

    def _never_made(self, name: str) -> bool:
        """Tell whether a module's class is there for questions about it alone."""
        node = self.module.classes.get(name)
        if node is None or name in self.module.references | self.module.texts or name == self.entry:
            return False
        return name in self.module.asked and any(ast.unparse(base).endswith("Module") for base in node.bases)

    def _is(self, number: int, node: ast.expr) -> bool:
        """Tell whether a name has this value because of what the surroundings answered."""
        return type(self.known.get(node)) is int and self.known[node] == number

    # Expressions

    def _expressions(self, node: ast.AST, test: bool = False) -> None:
        """Change what is known inside of a node.

        Args:
            test: whether nothing but its truth is asked for.
        """
        if node in self.gone:
            return
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.arguments) and not node.defaults):
            return
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant):
            value = self._value(node)
            if value is not _OPEN and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
                self.edits.replace(node, repr(value))
                return
            if isinstance(node, ast.IfExp) and self._chosen(node):
                return
            if isinstance(node, ast.BoolOp) and self._shorter(node, test):
                return
            if isinstance(node, ast.BinOp) and self._unchanged(node):
                return
            if isinstance(node, ast.ListComp) and self._nothing_of(node):
                self.edits.replace(node, "[]")
                return
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.module.callees:
                for name, given in (self.module.callees[node.func.id].given(node) or {}).items():
                    self._note(name, given)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._expressions(node.operand, True)
            return
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self._expressions(value, test)
            return
        if isinstance(node, ast.IfExp):
            self._expressions(node.test, True)
            self._expressions(node.body, test)
            self._expressions(node.orelse, test)
            return
        for name, child in ast.iter_fields(node):
            if name in ("annotation", "returns", "ctx", "op"):
                continue
            for part in child if isinstance(child, list) else [child]:
                if isinstance(part, ast.AST):
                    self._expressions(part)

    def _note(self, name: str, value: ast.expr | None) -> None:
        """A name that is given what the surroundings answered holds that, too."""
        found = _OPEN if value is None or isinstance(value, ast.Constant) else self._value(value)
        if found is not _OPEN:
            self.answered.note(name, found)

    def _nothing_of(self, node: ast.ListComp) -> bool:
        tests = [self._value(test) for part in node.generators for test in part.ifs]
        return (
            len(node.generators) == 1
            and self._is_list(node.generators[0].iter)
            and any(test is not _OPEN and not test for test in tests)
        )

    def _is_list(self, node: ast.expr) -> bool:
        """Tell whether running over a value changes nothing."""
        for place, loads in self.module.loads.items():
            if any(load.node is node for load in loads):
                made = [found.value for found in self.module.assigned[place]]  # type: ignore[attr-defined]
                once = len(made) == self.module.functions[place[0]].bound[place[1]]  # type: ignore[index]
                return once and all(isinstance(value, (ast.List, ast.ListComp, ast.Tuple)) for value in made)
        return False

    def _chosen(self, node: ast.IfExp) -> bool:
        holds_ = self._value(node.test)
        if holds_ is _OPEN:
            return False
        chosen = node.body if holds_ else node.orelse
        self._put(node, chosen)
        return True

    def _shorter(self, node: ast.BoolOp, test: bool) -> bool:
        """Leave out the sides that decide nothing."""
        ends = isinstance(node.op, ast.Or)
        sides = [self._value(value) for value in node.values]
        for index, side in enumerate(sides):
            last = index == len(sides) - 1
            if side is not _OPEN and bool(side) is ends and test and all(map(self._pure, node.values[:index])):
                self.edits.replace(node, repr(ends))
                return True
            if side is not _OPEN and bool(side) is not ends and (test or not last):
                rest = [value for value in node.values if value is not node.values[index]]
                text = (" or " if ends else " and ").join(self._source(value) for value in rest)
                self.edits.replace(node, text if len(rest) == 1 else f"({text})")
                return True
        return False

    def _unchanged(self, node: ast.BinOp) -> bool:
        """Leave out a division by one device, a product with it, and a sum with nothing."""
        if isinstance(node.op, (ast.FloorDiv, ast.Mult)) and self._is(1, node.right):
            self._put(node, node.left)
        elif isinstance(node.op, ast.Mult) and self._is(1, node.left):
            self._put(node, node.right)
        elif isinstance(node.op, (ast.Add, ast.Sub)) and self._is(0, node.right):
            self._put(node, node.left)
        else:
            return False
        return True

    def _put(self, node: ast.expr, part: ast.expr) -> None:
        start, end = (
            self.edits.enclosed(node) if isinstance(part, _ATOMS) else (self.edits.start(node), self.edits.end(node))
        )
        self.edits.put(start, end, self._source(part))

    def _source(self, node: ast.expr) -> str:
        text = self.edits.data[self.edits.start(node) : self.edits.end(node)].decode()
        return text if isinstance(node, _ATOMS) else f"({text})"

    # Statements

    def _block(self, body: list[ast.stmt]) -> bool:
        """Change statements; tells whether none is left of them, a text that says what they do left out."""
        left, ended = [], False
        for node in body:
            if (ended or self._goes(node)) and not holds(node, ast.Yield, ast.YieldFrom):
                if self.edits.alone(node) or isinstance(node, (ast.If, ast.For, ast.FunctionDef)):
                    self.gone.add(node)
                    left.append((node, False))
                    continue
            left.append((node, True))
            ended = ended or isinstance(node, (ast.Return, ast.Raise, ast.Continue, ast.Break))
        empty = not any(stays and not isinstance(node, ast.Pass) and not is_docstring(node) for node, stays in left)
        dropped = [node for node, stays in left if not stays]
        for index, node in enumerate(dropped):
            only = index == 0 and not any(stays for _, stays in left)
            self.edits.drop(node, "pass" if only else "")
        for node, stays in left:
            if stays:
                self._statement(node)
        return empty

    def _goes(self, node: ast.stmt) -> bool:
        """Tell whether a statement does nothing."""
        module = self.module
        if node in self.gone:
            return True
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if node in module.tree.body:
                return self._unneeded(node)
            key = module.callees.get(f".{node.name}")
            return key is not None and key.node is node and not key.calls and self._unneeded(node)
        if isinstance(node, ast.Assert):
            value = self._value(node.test)
            return value is not _OPEN and bool(value)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            same = isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Name)
            return same and node.targets[0].id == node.value.id  # type: ignore[attr-defined]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            func = node.value.func
            key_name = func.id if isinstance(func, ast.Name) else f".{func.attr}" if is_own(func) else ""
            callee = module.callees.get(key_name)
            if callee is None or callee.name in module.classes:
                return False
            returned = only_returns(callee.node)
            given = callee.given(node.value)
            return isinstance(returned, ast.Constant) and given is not None and all(map(self._pure, given.values()))
        if isinstance(node, ast.If):
            value = self._value(node.test)
            if value is not _OPEN and not value and not node.orelse:
                return not self._is_elif(node)
            empty = all(self._goes(part) or isinstance(part, ast.Pass) for part in node.body)
            return empty and not node.orelse and self._pure(node.test) and not self._is_elif(node)
        if isinstance(node, ast.For):
            plain = isinstance(node.iter, (ast.Tuple, ast.List)) and self._pure(node.iter) and not node.orelse
            empty = all(self._goes(part) or isinstance(part, ast.Pass) for part in node.body)
            return plain and empty and isinstance(node.target, ast.Name) and self._only_inside(node)
        return False

    def _only_inside(self, loop: ast.For) -> bool:
        """Tell whether what a loop runs over is read in the loop alone."""
        name, first, last = ast.unparse(loop.target), loop.lineno, loop.end_lineno or loop.lineno
        places = [owner for owner, found in self.module.loads if found == name and isinstance(owner, ast.stmt)]
        around = [owner for owner in places if owner.lineno <= first <= (owner.end_lineno or 0)]
        reads = [load.node.lineno for owner in around for load in self.module.loads[owner, name]]
        return all(first <= row <= last for row in reads)

    def _unneeded(self, node: ast.FunctionDef | ast.ClassDef) -> bool:
        """Tell whether nothing reads a name any more that something did."""
        module = self.module
        if node.name not in self.first or node.name in module.references or module.is_used(node.name):
            return False
        return not any(isinstance(n, ast.Name) and n.id == node.name for n in walk_tree(module.tree))

    def _is_elif(self, node: ast.stmt) -> bool:
        return self.edits.data[self.edits.start(node) :].startswith(b"elif")

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for part in (*node.decorator_list, *getattr(node, "bases", ())):
                self._expressions(part)
            if isinstance(node, ast.FunctionDef):
                for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                    self._expressions(default)
            self._block(node.body)
        else:
            if isinstance(node, ast.AnnAssign) or (isinstance(node, ast.Assign) and len(node.targets) == 1):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                self._note(f".{target.attr}" if isinstance(target, ast.Attribute) else ast.unparse(target), node.value)
            for field, child in ast.iter_fields(node):
                if isinstance(child, list) and child and isinstance(child[0], ast.stmt):
                    self._block(child)
                elif field == "handlers":
                    for handler in child:
                        self._block(handler.body)
                elif field != "annotation":
                    stored = field in ("target", "targets")
                    for part in child if isinstance(child, list) else [child]:
                        if isinstance(part, (ast.Subscript, ast.Attribute) if stored else ast.AST):
                            self._expressions(part, isinstance(node, (ast.While, ast.Assert)))

    def _if(self, node: ast.If) -> None:
        value, edits = self._value(node.test), self.edits
        yields = holds(node, ast.Yield, ast.YieldFrom)
        if value is _OPEN or yields or node.body[0].lineno <= (node.test.end_lineno or 0):
            self._expressions(node.test, True)
            empty = self._block(node.body)
            if node.orelse and all(self._goes(part) or isinstance(part, ast.Pass) for part in node.orelse):
                edits.rows(self._else(node), node.end_lineno or node.lineno)
            elif empty and node.orelse and isinstance(node.body[0], ast.Pass) and not self._is_elif(node.orelse[0]):
                test, colon = self._source(node.test), edits.colon(self._header(node))
                asked = "elif" if self._is_elif(node) else "if"
                edits.put(edits.start(node), colon, f"{asked} not {test}")
                edits.rows(self._header(node) + 1, self._else(node))
            self._block(node.orelse)
            return
        last = node.end_lineno or node.lineno
        body = node.body[-1].end_lineno or node.lineno
        other = node.orelse[0] if node.orelse else None
        columns = node.body[0].col_offset - node.col_offset
        header = self._header(node)
        if value:
            edits.rows(body + 1, last)
            if self._is_elif(node):
                edits.put(edits.start(node), edits.colon(header), "else")
            else:
                edits.rows(node.lineno, header)
                edits.dedent(header + 1, body, columns)
        elif isinstance(other, ast.If) and self._is_elif(other):
            edits.rows(node.lineno, other.lineno - 1)
            if not self._is_elif(node):
                edits.put(edits.start(other), edits.start(other) + 4, "if")
        elif other is not None:
            keyword = self._else(node)
            if self._is_elif(node):
                edits.rows(node.lineno, keyword - 1)
            else:
                edits.rows(node.lineno, keyword)
                edits.dedent(keyword + 1, last, columns)
        elif self._is_elif(node):
            edits.rows(node.lineno, last)

    def _else(self, node: ast.If) -> int:
        """Return the line of ``else:``."""
        rows = range(node.orelse[0].lineno - 1, node.body[-1].end_lineno or node.lineno, -1)
        return next(row for row in rows if self.edits.row(row).strip().startswith(b"else:"))

    def _header(self, node: ast.If) -> int:
        """Return the last line of ``if …:``."""
        row = node.test.end_lineno or node.lineno
        while not self.edits.row(row).split(b"#")[0].rstrip().endswith(b":"):
            row += 1
        return row


def _counts(node: ast.expr) -> bool:
    """Tell whether an expression is named as a number of parts of a model."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return "num_" in name or name.startswith("n_")


def _plain(node: ast.expr | None) -> Any:
    """Return None, a truth or a small whole number that is written out; ``_OPEN`` for all else."""
    if isinstance(node, ast.Constant) and (node.value is None or type(node.value) in (bool, int)):
        return node.value
    return _OPEN


def _same(a: ast.expr | None, b: ast.expr | None) -> bool:
    first, second = _plain(a), _plain(b)
    return first is not _OPEN and first == second and type(first) is type(second)
