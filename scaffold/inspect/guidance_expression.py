"""Writes the arithmetic between the denoiser's predictions and the step as an expression."""

from __future__ import annotations

import ast
from itertools import islice

from scaffold.inspect.guidance import truth
from scaffold.inspect.guidance_conditions import Facts, UnclearError
from scaffold.inspect.guidance_numbers import ARITHMETIC, Numbers
from scaffold.inspect.program.algebra import Search, reach_last, same, walk
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.turns import reshaped
from scaffold.inspect.program.values import Attr, Call, Choice, Const, Item, Op, Seq
from scaffold.source.syntax import walk_tree
from scaffold.source.values import External, Value

CONDITIONAL, UNCONDITIONAL = "conditional", "unconditional"
_CASTS = frozenset(("to", "float", "double", "type_as", "contiguous", "clone", "type"))
_JOINS = frozenset(("stack", "cat"))
_REARRANGES = _CASTS | _JOINS | {"split", "narrow", "select", "concat", "concatenate"}
_NORMS = frozenset(("norm", "vector_norm", "std"))


class Writer(Numbers):
    """Writes one combination.

    Attributes:
        predictions: values of the denoiser, in the order in which the expression names them ``p0``, ``p1``…
        alone: numbers of those that are the result where guidance is off.
    """

    def __init__(self, loop: Denoising, calls: list[CallRecord]) -> None:
        super().__init__(loop)
        self._results: dict[int, list[CallRecord]] = {}
        for record in calls:
            for part in _parts_of(record.result):
                self._results.setdefault(id(part), []).append(record)
        stop = [] if loop.sample is None else [id(loop.sample)]
        self._predicted = Search(lambda node: id(node) in self._results, stop)
        self._gated = False
        self.predictions: list[Value] = []
        self.alone: set[int] = set()

    # Tensors

    def tensor(self, node: Value, facts: Facts) -> ast.expr:
        """A value that is made from predictions.

        Raises:
            UnclearError: anything in it is neither arithmetic nor a choice that is understood.
        """
        try:
            return self._tensor(node, facts)
        except UnclearError as error:
            error.at = error.at or getattr(node, "at", None)
            raise

    def _tensor(self, node: Value, facts: Facts) -> ast.expr:
        if self._is_prediction(node):
            return self._named(node)
        if isinstance(node, Choice):
            return self._choice(node, facts)
        if isinstance(node, Op):
            return self._arithmetic(node, facts)
        if isinstance(node, Item) and isinstance(node.base, Seq) and isinstance(node.key, Const):
            node = node.base if node.key.value == 0 else node
        if isinstance(node, Seq) and node.items and all(item is node.items[0] for item in node.items):
            if all(value is node.items[0] for value, _ in node.appends):
                return self.tensor(node.items[0], facts)  # the one sample of a batch
        if isinstance(node, Call):
            return self._call(node, facts)
        raise UnclearError

    def _arithmetic(self, node: Op, facts: Facts) -> ast.expr:
        if node.op == "neg":
            return ast.UnaryOp(ast.USub(), self._either(node.args[0], facts))
        if node.op not in ARITHMETIC or len(node.args) != 2:
            raise UnclearError
        self.places.append(node.at)
        left, right = (self._either(arg, facts) for arg in node.args)
        return ast.BinOp(left, ARITHMETIC[node.op], right)

    def _either(self, node: Value, facts: Facts) -> ast.expr:
        return self.tensor(node, facts) if self._predicted(node) else self.scalar(node, facts)

    def _call(self, node: Call, facts: Facts) -> ast.expr:
        name, external = node.name, isinstance(node.func, External)
        inner = reshaped(node)
        if inner is None and isinstance(node.func, Attr) and name in _CASTS:
            inner = node.func.base
        if inner is None and name in _JOINS and external and node.args:
            inner = node.args[0]
        if inner is not None:
            return self.tensor(inner, facts)
        if name == "lerp" and external and len(node.args) == 3 and not node.kwargs:
            self.places.append(node.at)
            return _torch("lerp", [self._either(arg, facts) for arg in node.args])
        if name == "where" and external and len(node.args) == 3:
            return self._choice(Choice(node.args[1:], node.args[0], at=node.at), facts)
        if name in _NORMS:
            return self._norm(node, facts)
        raise UnclearError

    def _norm(self, node: Call, facts: Facts) -> ast.expr:
        """A norm or a deviation: along dimensions that are counted from the last; a norm of each sample as a whole."""
        given = {key: default_of(value) for key, value in node.kwargs.items()}
        of = [node.func.base, *node.args] if isinstance(node.func, Attr) else node.args
        if len(of) != 1 or set(given) - {"dim", "keepdim"} or MISSING in given.values():
            raise UnclearError
        dims = given.get("dim")
        dims = [dims] if isinstance(dims, int) else dims
        deviates = node.name == "std"
        if dims is None and deviates:
            raise UnclearError
        if dims is not None and not (given.get("keepdim") is True and all(d < 0 for d in dims)):
            raise UnclearError
        taken = self.tensor(of[0], facts)
        self.places.append(node.at)
        along: ast.expr = ast.Tuple([ast.Constant(d) for d in dims or ()], ast.Load())
        if dims is None:
            along = ast.parse(f"tuple(range(1, {CONDITIONAL}.ndim))", mode="eval").body
        call = _torch("std" if deviates else "linalg.vector_norm", [taken])
        call.keywords = [ast.keyword("dim", along), ast.keyword("keepdim", ast.Constant(True))]
        return call

    # Predictions

    def _is_prediction(self, node: Value) -> bool:
        """Whether a value is the denoiser's, perhaps cut out of a batch or rearranged, but not computed with."""
        if not self._predicted(node):
            return False
        stack, seen = [node], set[int]()
        while stack:
            value = stack.pop()
            if id(value) in seen or id(value) in self._results or not self._predicted(value):
                continue
            seen.add(id(value))
            if isinstance(value, Op):
                return False
            if isinstance(value, Call) and reshaped(value) is None and value.name not in _REARRANGES:
                return False
            stack += value.parts()
        return True

    def _named(self, node: Value) -> ast.expr:
        for index, known in enumerate(self.predictions):
            if same(known, node):
                return ast.Name(f"p{index}", ast.Load())
        self.predictions.append(node)
        return ast.Name(f"p{len(self.predictions) - 1}", ast.Load())

    def are_skipped(self, unconditional: list[int]) -> bool:
        """Whether the pipeline itself leaves those predictions out, where the turn decides about guidance."""
        return not self._gated or all(self._is_skipped(self.predictions[index]) for index in unconditional)

    def _is_skipped(self, prediction: Value) -> bool:
        records = [record for node in self._behind(prediction) for record in self._results.get(id(node), ())]
        return bool(records) and all(self._asks_the_turn(record) for record in records)

    def _asks_the_turn(self, record: CallRecord) -> bool:
        """Whether the turn decides if a call is made, or its batch size."""
        given = [value for arg in record.given for value in self._behind(arg)]
        conditions = [cond for cond, _ in record.conditions]
        conditions += [v.cond for v in given if isinstance(v, Choice) and v.cond is not None]
        return any(self._is_gate(cond) for cond in conditions)

    def _behind(self, value: Value) -> list[Value]:
        """Return the nodes behind a value, up to the denoiser's results and the sample."""
        stop = {*self._results, id(self._loop.sample)}
        return list(islice(walk(value, stop), 4000))

    # Choices

    def _choice(self, node: Choice, facts: Facts) -> ast.expr:
        if node.cond is None or len(node.options) != 2:
            raise UnclearError
        cond, known = node.cond, truth(node.cond, facts)
        if known is not None:
            return self.tensor(node.options[0 if known else 1], self._with(facts, cond, known))
        usual = self._usual(cond)
        if usual is not None and not self._is_setting(cond):
            return self.tensor(node.options[0 if usual else 1], self._with(facts, cond, usual))
        first, second = (
            self._way(o, self._with(facts, cond, t)) for o, t in zip(node.options, (True, False), strict=True)
        )
        if first is not None and second is not None and _shape(first) == _shape(second):
            return first  # computed in one call or in several
        gate, plain = self._is_gate(cond), [isinstance(way, ast.Name) for way in (first, second)]
        if plain[0] is not plain[1]:
            # A single prediction is the result itself; guidance combines several.
            single, guided = (first, second) if plain[0] else (second, first)
            if isinstance(single, ast.Name) and single.id[1:].isdigit():
                self.alone.add(int(single.id[1:]))
            if guided is not None:
                self._gated = self._gated or gate
                return guided
        if gate or first is None or second is None:
            raise UnclearError
        return ast.IfExp(self.scalar(cond, facts), first, second)

    def _way(self, node: Value, facts: Facts) -> ast.expr | None:
        try:
            return self.tensor(node, facts)
        except UnclearError:
            return None


def _parts_of(result: Value) -> list[Value]:
    """What a call may have returned: a choice's options, a sequence's items."""
    parts = reach_last([result], lambda node: node.parts() if isinstance(node, (Choice, Seq)) else ())
    return list(islice(parts, 64))


def _shape(tree: ast.expr) -> str:
    """An expression with its predictions numbered as they come."""
    numbers: dict[str, str] = {}
    copied = ast.parse(ast.unparse(tree), mode="eval")
    for node in walk_tree(copied):
        if isinstance(node, ast.Name) and node.id[1:].isdigit():
            node.id = numbers.setdefault(node.id, f"p{len(numbers)}")
    return ast.dump(copied)


def _torch(name: str, args: list[ast.expr]) -> ast.Call:
    func = ast.parse(f"torch.{name}", mode="eval").body
    return ast.Call(func, args, [])
