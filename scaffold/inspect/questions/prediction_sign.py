"""Which sign the denoiser's output has as a velocity: 1 for d x / d sigma, -1 where it points from noise to data."""

from __future__ import annotations

import ast
from collections.abc import Callable

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.default_schedule import constructor_argument
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.held_scheduler import HeldScheduler, held_scheduler
from scaffold.inspect.program.numeric import MISSING, plain
from scaffold.inspect.program.turn_time import coefficient_sign
from scaffold.inspect.program.values import Const, Obj
from scaffold.inspect.questions import prediction, scheduler
from scaffold.inspect.questions.scheduler_object import noise_falls

ORDER = 18
KEYS = ("detail.prediction.sign",)
_LATER = ("next", "lower", "prev", "following")
Taken = Callable[[ast.expr], "bool | None"]
_SAMPLE, _OUTPUT = "sample", "model_output"


def answers(program: Program) -> dict[str, Fact]:
    """``1`` or ``-1``; unknown where the model predicts something else, or the step is not understood.

    A noise level always falls, so a step ``x + c * output`` with a negative ``c`` takes d x / d sigma.
    """
    loop = program.denoising
    if loop is None:
        return {}
    clean = prediction.answers(program).get("detail.denoiser.predicts_clean")
    negated = scheduler.negated(loop)
    if clean is None or clean.value is not False or not isinstance(negated.value, bool):
        return {}
    found = _of_step(program, loop)
    if found is None:
        return {}
    sign, places = found
    return {KEYS[0]: fact(-sign if negated.value else sign, [*places, *negated.evidence])}


def _of_step(program: Program, loop: Denoising) -> tuple[int, list[Evidence | None]] | None:
    """What the step takes: 1 for d x / d sigma."""
    if loop.step is None or (loop.inline is not None and held_scheduler(program) is None):
        if loop.inline is None:
            return None
        sign = coefficient_sign(loop)
        return (-sign, [loop.inline.at]) if sign is not None else None
    held = held_scheduler(program)
    if held is None:
        return None
    names = {k for k, v in loop.step.kwargs.items() if not (isinstance(v, Const) and v.value is None)}
    known = held.known or held.above
    if known is not None:
        turned = any(name in names for name in known.opposite)
        return (-known.sign if turned else known.sign), [held.made[0].at, loop.step.at]
    return _of_class(program, held, _taken(program, held, names))


def _of_class(program: Program, held: HeldScheduler, taken: Taken) -> tuple[int, list[Evidence | None]] | None:
    """Read the step of a class of the source: an Euler step, or a clean sample made from sample and output."""
    falls = noise_falls(program, held)
    if held.cls is None or falls is None:
        return None
    for method in ("step", "convert_model_output"):
        found = held.cls.find_method(method)
        if found is None:
            continue
        owner, node = found
        signs = set(_signs(node, falls, taken))
        if signs and len({s for s, _ in signs}) == 1:
            sign, line = min(signs)
            return sign, [Evidence(owner.module.file, line), held.made[0].at]
        if signs:
            return None
    return None


def _signs(node: ast.FunctionDef | ast.AsyncFunctionDef, falls: bool, taken: Taken) -> list[tuple[int, int]]:
    """The sign that each assignment of a method implies, with its line; branches that the call rules out are left."""
    found: list[tuple[int, int]] = []
    for statement in _statements(node.body, taken):
        value = statement.value
        if not (isinstance(statement, ast.Assign) and isinstance(value, ast.BinOp)):
            continue
        if isinstance(value.op, ast.Add):
            sides = [value.left, value.right]
            samples = [_is_name(s, _SAMPLE) for s in sides]
            if sorted(samples) == [False, True]:
                change = sides[samples.index(False)]
                span = _beside(change, _OUTPUT)
                way = _way(span, node, taken) if span is not None else None
                if way is not None:
                    found.append((way if falls else -way, statement.lineno))
        elif isinstance(value.op, ast.Sub) and _is_name(value.left, _SAMPLE):
            # x - sigma * output is the clean sample of a flow.
            level = _beside(value.right, _OUTPUT)
            if isinstance(level, ast.Name) and "sigma" in level.id:
                found.append((1, statement.lineno))
    return found


def _statements(body: list[ast.stmt], taken: Taken) -> list[ast.Assign]:
    """All assignments, of an ``if x is (not) None`` those of the side that the call takes."""
    found: list[ast.Assign] = []
    for statement in body:
        if isinstance(statement, ast.Assign):
            found.append(statement)
        elif isinstance(statement, ast.If):
            side = taken(statement.test)
            found += _statements(statement.body, taken) if side in (None, True) else []
            found += _statements(statement.orelse, taken) if side in (None, False) else []
        elif isinstance(statement, (ast.With, ast.For, ast.While)):
            found += _statements(statement.body, taken)
    return found


def _taken(program: Program, held: HeldScheduler, names: set[str]) -> Taken:
    """Which side of a condition the call takes: by its arguments, or by a setting's default."""

    def side(test: ast.expr) -> bool | None:
        if isinstance(test, ast.Attribute) and ast.unparse(test.value) == "self.config":
            made = held.made[0]
            known = plain(constructor_argument(program, made, test.attr)) if isinstance(made, Obj) else MISSING
            return bool(known) if isinstance(known, bool) else None
        return _side(test, names)

    return side


def _side(test: ast.expr, given: set[str]) -> bool | None:
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        other = test.comparators[0]
        if isinstance(test.left, ast.Name) and isinstance(other, ast.Constant) and other.value is None:
            if test.left.id in given or "timesteps" in test.left.id:
                return (test.left.id in given) is isinstance(test.ops[0], ast.IsNot)
    return None


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id.startswith(name)


def _beside(node: ast.expr, name: str) -> ast.expr | None:
    """The other factor of a product with a name."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if _is_name(one, name):
                return other
    return None


def _way(span: ast.expr, method: ast.FunctionDef | ast.AsyncFunctionDef, taken: Taken) -> int | None:
    """1 for next - now, -1 for now - next; a name is looked up in the method."""
    if isinstance(span, ast.Name):
        values = [
            s.value
            for s in _statements(method.body, taken)
            if any(isinstance(t, ast.Name) and t.id == span.id for t in s.targets)
        ]
        ways = {_way(v, method, taken) for v in values if not isinstance(v, ast.Name)}
        return ways.pop() if len(ways) == 1 else None
    if not (isinstance(span, ast.BinOp) and isinstance(span.op, ast.Sub)):
        return None
    later = [_is_later(s) for s in (span.left, span.right)]
    return {(True, False): 1, (False, True): -1}.get((later[0], later[1]))


def _is_later(node: ast.expr) -> bool:
    text = ast.unparse(node)
    return any(word in text for word in _LATER) or "+ 1]" in text
