"""The statements of the loop that make the next sample from a prediction: where they begin and end, what they read."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.questions.inline_update import method_around
from scaffold.source.syntax import around, walk_tree

ORDER = 19
KEYS = ("detail.region.parts", "detail.region.method")
# Attributes of a tensor that do not depend on its values.
_OF_FORM = frozenset({"shape", "device", "dtype", "ndim"})
_PLAIN = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If)
_Loop = ast.For | ast.While


@dataclass(frozen=True)
class Region:
    """Statements of one block, and the local names that they read and write.

    Attributes:
        sample: the name that they update.
        output: the one other name that a prediction of this turn came into.
        bound: names that the loop assigns and they read; another turn has other values.
        first: line of the first statement.
        last: line on which the last one ends.
    """

    sample: str
    output: str
    bound: tuple[str, ...]
    first: int
    last: int


def answers(program: Program) -> dict[str, Fact]:
    """``parts``: class and function around the loop, the names, the lines counted from the function's first line.

    Established where the statements only compute, read one name that depends on the model and leave nothing behind but
    the sample.
    """
    loop = program.denoising
    if loop is None or loop.sample is None:
        return {}
    node = loop.loop.node
    at = _place(program, loop)
    if at is None or not isinstance(node, _Loop) or at.file != loop.loop.at.file:
        return {}
    found = method_around(program, at)
    nodes = around(program.source.tree(at.file), at.line)
    functions = [n for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    # Not one inside of another: the function is the module's, or a class's of the module.
    if found is None or len(functions) != 1 or not isinstance(function := functions[0], ast.FunctionDef):
        return {}
    region = find_region(function, node, at.line, loop.sample.name)
    if region is None:
        return {}
    text, places = found
    offset = places[0].line - 1
    value = {
        "class": loop.loop.owner,
        "function": function.name,
        "sample": region.sample,
        "output": region.output,
        "bound": list(region.bound),
        "first": region.first - offset,
        "last": region.last - offset,
    }
    return {
        "detail.region.parts": fact(value, [Evidence(at.file, region.first)]),
        "detail.region.method": fact(text, places),
    }


def _place(program: Program, loop: Denoising) -> Evidence | None:
    """Where the loop takes the step or writes the update; where another function writes it, the call of that."""
    update = loop.step if loop.step is not None else loop.inline
    at, node = update.at if update is not None else None, loop.loop.node
    if at is None or not isinstance(node, _Loop) or (at.file == loop.loop.at.file and spans(node, at.line)):
        return at
    made = {id(option) for option in options(loop.sample.final)} if loop.sample is not None else set()
    calls = [r.at for r in program.trace.calls if loop.number in r.loops and id(r.result) in made and r.at is not None]
    inside = {at for at in calls if at.file == loop.loop.at.file and spans(node, at.line)}
    return inside.pop() if len(inside) == 1 else at


def find_region(function: ast.FunctionDef, loop: _Loop, line: int, sample: str) -> Region | None:
    """Return the statements from the one at ``line`` to the last that assigns the sample; None where they do more.

    Args:
        function: around the loop.
        loop: around the line.
        line: where the step is taken, or the update written.
        sample: local name that the loop carries.
    """
    block = _block(loop.body, line)
    if block is None:
        return None
    begin = next(i for i, node in enumerate(block) if spans(node, line))
    writes = [i for i, node in enumerate(block) if i >= begin and sample in _stored([node])]
    if not writes:
        return None
    part = block[begin : writes[-1] + 1]
    inside = {id(node) for statement in part for node in walk_tree(statement)}
    if not _only_computes(part, sample) or _left_behind(function, part, sample, inside):
        return None
    elsewhere = (node for statement in loop.body for node in walk_tree(statement) if id(node) not in inside)
    if any(isinstance(node, ast.Name) and node.id == sample and _writes(node) for node in elsewhere):
        return None  # the loop changes the sample in another place, too
    predicted = _predicted(loop, sample)
    outputs = _loaded(part, of_form=False) & predicted - _stored(part)
    if len(outputs) != 1:
        return None
    output = outputs.pop()
    stored = _stored([loop])
    bound = [name for name in _first_read(part) if name in stored and name not in (sample, output)]
    return Region(sample, output, tuple(bound), part[0].lineno, part[-1].end_lineno or part[-1].lineno)


def spans(node: ast.stmt | _Loop, line: int) -> bool:
    """Whether a statement stands on a line, among others."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _block(body: Sequence[ast.stmt], line: int) -> list[ast.stmt] | None:
    """The innermost list of statements with one that spans the line and is not made of statements itself."""
    for node in body:
        if not spans(node, line):
            continue
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            return list(body)
        inner = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
        return next((found for part in inner if (found := _block(part, line)) is not None), None)
    return None


def _stored(nodes: Sequence[ast.AST]) -> set[str]:
    return {n.id for node in nodes for n in walk_tree(node) if isinstance(n, ast.Name) and _writes(n)}


def _writes(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _loaded(nodes: Sequence[ast.AST], *, of_form: bool = True) -> set[str]:
    return {name for node in nodes for name in _reads(node, of_form)}


def _reads(node: ast.AST, of_form: bool) -> Iterator[str]:
    """Names that a node reads; without ``of_form`` those left out of which only shape, dtype or device is asked."""
    if isinstance(node, ast.Attribute) and node.attr in _OF_FORM and not of_form:
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    for child in ast.iter_child_nodes(node):
        yield from _reads(child, of_form)


def _first_read(part: Sequence[ast.stmt]) -> list[str]:
    """Names that are read before these statements assign them."""
    found: dict[str, None] = {}
    known: set[str] = set()
    for node in part:
        found.update(dict.fromkeys(sorted(_loaded([node]) - known)))
        if not isinstance(node, ast.If):
            known |= _stored([node])
    return list(found)


def _only_computes(part: Sequence[ast.stmt], sample: str) -> bool:
    """Whether the statements assign local names alone, and each of them leads to the sample."""
    kept = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await, ast.Lambda)
    for statement in part:
        for node in walk_tree(statement):
            if isinstance(node, kept) or (isinstance(node, ast.stmt) and not isinstance(node, _PLAIN)):
                return False
            if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
                return False
            if isinstance(node, ast.Constant) and node.lineno != node.end_lineno:
                return False  # a text over several lines, which moves when it is indented
    wanted = {sample}
    for statement in reversed(part):
        if not _stored([statement]) & wanted:
            return False
        wanted |= _loaded([statement])
    return True


def _left_behind(function: ast.FunctionDef, part: Sequence[ast.stmt], sample: str, inside: set[int]) -> bool:
    """Whether something else than the sample that these statements assign is read outside of them."""
    own = _stored(part) - {sample}
    return any(isinstance(n, ast.Name) and n.id in own for n in walk_tree(function) if id(n) not in inside)


def _predicted(loop: _Loop, sample: str) -> set[str]:
    """Names of the loop that a call made from the sample, directly or through other names."""
    found: set[str] = set()
    holding = {sample}  # names of what holds the sample as it is, such as a dictionary of arguments
    pairs = list(_assignments(loop))
    while True:
        before = len(found) + len(holding)
        for names, value in pairs:
            read = _loaded([value], of_form=False)
            if read & found or (read & holding and any(isinstance(node, ast.Call) for node in walk_tree(value))):
                found |= names - {sample}
            elif read & holding:
                holding |= names
        if len(found) + len(holding) == before:
            return found


def _assignments(loop: _Loop) -> Iterator[tuple[set[str], ast.expr]]:
    for node in walk_tree(loop):
        if isinstance(node, ast.Assign):
            yield _stored(node.targets), node.value
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            yield _stored([node.target]), node.value
