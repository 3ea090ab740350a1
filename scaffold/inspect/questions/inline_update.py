"""An update that the loop writes out itself: ``sample = sample + (next - now) * prediction``."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.turns import reshaped
from scaffold.inspect.program.values import Call, Op
from scaffold.source.syntax import around, walk_tree
from scaffold.source.values import Value

ORDER = 16
KEYS = ("detail.update.statement", "detail.update.rank", "detail.update.method")


@dataclass(frozen=True)
class Update:
    """Source text of the parts of an Euler step."""

    sample: str
    model_output: str
    now: str
    following: str


def answers(program: Program) -> dict[str, Fact]:
    """The update's text and its parts by role, the dimensions of what it updates, the text of the method around it."""
    loop = program.denoising
    if loop is None or loop.inline is None or loop.step is not None or loop.inline.at is None:
        return {}
    facts: dict[str, Fact] = {}
    for node in walk_tree(loop.loop.node):
        found = euler(node) if getattr(node, "lineno", None) == loop.inline.at.line else None
        if found is not None and isinstance(node, ast.stmt):
            value = {
                "class": loop.loop.owner,
                "method": loop.loop.function,
                "sample": found.sample,
                "model_output": found.model_output,
                "timestep": found.now,
                "next": found.following,
                "text": ast.unparse(node),
            }
            facts["detail.update.statement"] = fact(value, [loop.inline.at])
            found_method = method_around(program, loop.inline.at)
            if found_method is not None:
                facts["detail.update.method"] = fact(*found_method)
    rank = _rank(loop.inline)
    if rank is not None:
        facts["detail.update.rank"] = fact(rank, [loop.inline.at])
    return facts


def euler(node: ast.AST) -> Update | None:
    """Read ``x = x + (next - now) * v`` or ``x += …``, factors in either order."""
    target: ast.expr
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        target, change = node.target, node.value
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.BinOp):
        target, value = node.targets[0], node.value
        sides = [value.left, value.right]
        own = [side for side in sides if ast.unparse(side) == ast.unparse(target)]
        if not isinstance(value.op, ast.Add) or len(own) != 1:
            return None
        change = sides[1 - sides.index(own[0])]
    else:
        return None
    if not (isinstance(change, ast.BinOp) and isinstance(change.op, ast.Mult)):
        return None
    for span, output in ((change.left, change.right), (change.right, change.left)):
        if isinstance(span, ast.BinOp) and isinstance(span.op, ast.Sub) and not isinstance(output, ast.BinOp):
            return Update(*(ast.unparse(part) for part in (target, output, span.right, span.left)))
    return None


def method_around(program: Program, at: Evidence) -> tuple[str, list[Evidence]] | None:
    """The text of the innermost function around a line, as it stands in its file, and where it begins."""
    functions = [node for node in around(program.source.tree(at.file), at.line) if isinstance(node, ast.FunctionDef)]
    if not functions:
        return None
    inner = max(functions, key=lambda node: node.lineno)
    first = min([inner.lineno, *(decorator.lineno for decorator in inner.decorator_list)])
    lines = program.source.read(at.file).splitlines()[first - 1 : inner.end_lineno]
    return "\n".join(lines) + "\n", [Evidence(at.file, first)]


def _rank(update: Op) -> int | None:
    """Dimensions of the updated value, where a reshape to a literal number of sizes made it."""
    ranks = {_reshaped_to(option) for arg in update.args for option in options(arg)} - {None}
    return ranks.pop() if len(ranks) == 1 else None


def _reshaped_to(value: Value) -> int | None:
    if isinstance(value, Call) and value.name in ("reshape", "view") and reshaped(value) is not None:
        return len(value.args) if len(value.args) > 1 else None
    return None
