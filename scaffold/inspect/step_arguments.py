"""Finds the role of each argument of a step from its origin."""

from __future__ import annotations

from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, reach, walk
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.schedule import base_grid, entry, vector_of
from scaffold.inspect.program.turns import is_sample, is_turn
from scaffold.inspect.program.values import Attr, Call, Choice, Elem, Item, Op, Param, Seq, Slice
from scaffold.source.values import Value


def role(program: Program, found: Denoising, value: Value, position: int, keyword: str | None) -> str:
    """Return the role of an argument of the step, from its origin."""
    sample, loop = found.sample, found.number
    if found.model_output is not None and value is found.model_output:
        return "model_output"
    if sample is not None and is_sample(value, sample):
        return "sample"
    if (isinstance(value, Param) and value.key.rpartition(".")[2] == "generator") or keyword == "generator":
        return "generator"
    if is_difference(value, loop):
        return "dt"
    if is_turn(value, loop):
        return "timestep" if fed_to_model(found, value) else "sigma" if _is_unit(value) else "timestep"
    if _is_generator(value):
        return "generator"
    if keyword is not None:
        return keyword
    if sample is None and position in (0, 1, 2):
        return ("model_output", "timestep", "sample")[position]
    if isinstance(value, Call) and value.name in ("randn", "randn_like", "randn_tensor"):
        return "noise"
    return f"argument_{position}"


def _is_generator(value: Value) -> bool:
    """Whether a value is the request's generator, or one made where the request has none."""
    return any(
        (isinstance(node, Param) and node.key.rpartition(".")[2] == "generator")
        or (isinstance(node, Call) and node.name in ("Generator", "manual_seed"))
        for node in reach([value], lambda node: node.parts() if isinstance(node, (Choice, Op, Seq, Item)) else ())
    )


def is_difference(value: Value, loop: int) -> bool:
    """Whether a value is the difference of neighbouring entries of a schedule."""
    for option in options(value):
        node = option
        if isinstance(node, (Item, Elem)):
            vector = vector_of(node)
            if any(_neighbours(o) for o in options(vector)):
                return True
        if isinstance(node, Op) and node.op == "-" and len(node.args) == 2:
            if all(is_turn(a, loop) or _other_entry(a) for a in node.args):
                return True
        if isinstance(node, Op) and node.op in ("neg", "*") and any(is_difference(a, loop) for a in node.args):
            return True
        if isinstance(node, Call) and node.name == "abs" and node.args and is_difference(node.args[0], loop):
            return True
    return False


def _neighbours(vector: Value) -> bool:
    if isinstance(vector, Call) and vector.name == "diff":
        return True
    if isinstance(vector, Op) and vector.op == "neg":
        return _neighbours(vector.args[0])
    if not (isinstance(vector, Op) and vector.op == "-" and len(vector.args) == 2):
        return False
    return all(isinstance(a, Item) and isinstance(a.key, Slice) for a in vector.args)


def _other_entry(value: Value) -> bool:
    return isinstance(value, Item) or (isinstance(value, Choice) and any(_other_entry(o) for o in value.options))


def fed_to_model(found: Denoising, value: Value) -> bool:
    """Whether the model is given this very entry as its time."""
    if found.model_output is None:
        return False
    vectors = {id(vector_of(o)) for o in options(value)}
    for node in walk(found.model_output):
        if isinstance(node, Elem) and node.loop == found.number and id(vector_of(node)) in vectors:
            return True
        if isinstance(node, Item) and is_turn(node, found.number) and id(vector_of(node)) in vectors:
            return True
    return False


def _is_unit(value: Value) -> bool:
    vector = vector_of(value)
    grid = base_grid(vector)
    if grid is None:
        return isinstance(vector, Attr) and vector.name == "sigmas"
    ends = [entry(vector, grid, x) for x in (0.25, 0.75)]
    return all(e is not None and -0.01 <= e <= 1.01 for e in ends)
