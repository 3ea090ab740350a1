"""Changes of a syntax tree that no person makes: nodes dropped, doubled, swapped, taken from elsewhere, made greedy."""

from __future__ import annotations

import ast
import copy
import functools
import pickle
import random
from typing import Any

GREEDY = (
    "x = x * x * x",
    "x = [*x, *x]",
    "x = f'{x}{x}'",
    "x = (x, x)",
    "x = x if x else (x, x)",
    "while True: x += x",
    "for x in x: x = [x, x]",
    "x = {x: x for x in x for x in x}",
    "x = 10 ** 10 ** 10",
    "x = '%1000000000d' % x",
    "x = lambda x: x(x)",
    "return x",
    "raise x",
    "x = yield x",
    "del x",
    "x = super().x",
)
CONSTANTS: tuple[Any, ...] = (
    0, -1, 1e400, 2**70, 2**990, "", "\x1b[31m\n::error::x", "{", "%s%d", "[/bold]", "\ud800", b"", None, True, ...,
    1j, "a" * 5000, "layers.{i}.x", "../x",
)  # fmt: skip


Nodes = list[ast.AST]
Slot = tuple[ast.AST, str, int | None]


def mutated(tree: ast.Module, elsewhere: ast.Module, chance: random.Random) -> ast.Module:
    """Return a copy with one to five changes; ``elsewhere`` gives nodes to put in."""
    made: ast.Module = pickle.loads(pickle.dumps(tree, pickle.HIGHEST_PROTOCOL))  # a tenth of a deep copy's time
    nodes = list(ast.walk(made))
    for _ in range(chance.randint(1, 5)):
        chance.choice((_drop, _double, _swap, _splice, _constant, _name, _greedy))(nodes, elsewhere, chance)
    return made


@functools.lru_cache(maxsize=64)
def _slots_of(tree: ast.Module, kind: type[ast.AST]) -> list[Slot]:
    return _slots(list(ast.walk(tree)), kind)


def _bodies(nodes: Nodes) -> list[list[Any]]:
    found = []
    for node in nodes:
        for _, field in ast.iter_fields(node):
            if isinstance(field, list) and len(field) > 0 and isinstance(field[0], ast.AST):
                found.append(field)
    return found


def _slots(nodes: Nodes, kind: type[ast.AST]) -> list[Slot]:
    found: list[Slot] = []
    for node in nodes:
        for name, field in ast.iter_fields(node):
            if isinstance(field, kind):
                found.append((node, name, None))
            elif isinstance(field, list):
                found += [(node, name, at) for at, one in enumerate(field) if isinstance(one, kind)]
    return found


def _get(slot: Slot) -> Any:
    node, name, at = slot
    return getattr(node, name) if at is None else getattr(node, name)[at]


def _put(slot: Slot, new: ast.AST) -> None:
    node, name, at = slot
    if at is None:
        setattr(node, name, new)
    else:
        getattr(node, name)[at] = new


def _drop(nodes: Nodes, elsewhere: ast.Module, chance: random.Random) -> None:
    body = chance.choice(_bodies(nodes))
    del body[chance.randrange(len(body))]
    if not body:
        body.append(ast.Pass())


def _double(nodes: Nodes, elsewhere: ast.Module, chance: random.Random) -> None:
    body = chance.choice(_bodies(nodes))
    at = chance.randrange(len(body))
    body.insert(at, copy.deepcopy(body[at]))


def _swap(nodes: Nodes, elsewhere: ast.Module, chance: random.Random) -> None:
    slots = _slots(nodes, chance.choice((ast.expr, ast.stmt)))
    one, other = chance.choice(slots), chance.choice(slots)
    first, second = copy.deepcopy(_get(one)), copy.deepcopy(_get(other))
    _put(one, second)
    _put(other, first)


def _splice(nodes: Nodes, elsewhere: ast.Module, chance: random.Random) -> None:
    kind = chance.choice((ast.expr, ast.stmt))
    _put(chance.choice(_slots(nodes, kind)), copy.deepcopy(_get(chance.choice(_slots_of(elsewhere, kind)))))


def _constant(nodes: Nodes, elsewhere: ast.Module, chance: random.Random) -> None:
    slots = _slots(nodes, ast.Constant)
    if slots:
        _put(chance.choice(slots), ast.Constant(chance.choice(CONSTANTS)))


def _name(nodes: Nodes, elsewhere: ast.Module, chance: random.Random) -> None:
    names = [node for node in nodes if isinstance(node, ast.Name)]
    if names:
        chance.choice(names).id = chance.choice(names).id


def _greedy(nodes: Nodes, elsewhere: ast.Module, chance: random.Random) -> None:
    bodies = [body for body in _bodies(nodes) if isinstance(body[0], ast.stmt)]
    body = chance.choice(bodies)
    names = [node.id for node in nodes if isinstance(node, ast.Name)] or ["x"]
    text = chance.choice(GREEDY).replace("x", chance.choice(names))
    try:
        (statement,) = ast.parse(text).body
    except SyntaxError:
        return
    for _ in range(chance.choice((1, 1, 8, 40))):
        body.insert(chance.randrange(len(body) + 1), copy.deepcopy(statement))
