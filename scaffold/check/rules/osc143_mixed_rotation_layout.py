"""Rotary embedding pairs other channels, or turns them another way, than its tables and the checkpoint's weights do.

Channels are paired by halves (i with i + n/2) or as neighbours (2i with 2i + 1). Split one way and joined the other, with
tables that are laid out for the other, with the sign on the wrong part, or with cosine and sine exchanged, every shape
fits. Attention loses where tokens stand, by little at short distances, which no loss shows.

    first, second = x[..., 0::2], x[..., 1::2]                    # neighbours
    return x * cos + torch.cat((-second, first), dim=-1) * sin    # halves

Instead: one layout from the tables to the join, and ``(-second, first)``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.calls import resolve
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.rotations import Join, Layout, Pair, joins, pairs, read_by, tables, turned, wave_of, waves
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC143"
NAME = "mixed-rotation-layout"
SEVERITY = "error"
CHECKLIST = ("M8", "pitfall 23")
APPLIES = Applies(non_diffusers=True)
HELP = "pair, join and tabulate the channels in one layout: x * cos + cat((-second, first)) * sin for halves"
_WORDS: dict[Layout, str] = {"halves": "by halves", "neighbours": "as neighbours"}


def check(package: Package) -> Hits:
    """Compare the splits, joins and tables of the forward code."""
    functions = [f for f in package.forward_functions if f.file in package.files and _about_rotation(f)]
    used: set[Layout] = set()
    rotating: set[FunctionModel] = set()
    for function in functions:
        for pair, join in _turns(function):
            rotating.add(function)
            used.add(join.layout)
            if pair.layout != join.layout:
                used.add(pair.layout)
                text = f"channels are paired {_WORDS[pair.layout]} and joined {_WORDS[join.layout]}"
                yield Hit(function.file, pair.node, text)
            else:
                yield from _signs(function, pair, join)
    laid = [(function, layout, node) for function in functions for layout, node in tables(function)]
    for function, layout, node in laid:
        if len(used) == 1 and layout not in used and len({kind for _, kind, _ in laid}) == 1:
            text = f"the tables are laid out {_WORDS[layout]}, and the channels are paired {_WORDS[next(iter(used))]}"
            yield Hit(function.file, node, text)
    for function in functions:
        yield from _exchanged(function, rotating)
    yield from _unpacked(functions)


def _about_rotation(function: FunctionModel) -> bool:
    name = function.name.lower()
    return "rot" in name or "rope" in name or {"cos", "sin"} <= waves(function)


def _turns(function: FunctionModel) -> Iterator[tuple[Pair, Join]]:
    """Yield the splits with the join that puts their two parts together again."""
    found = list(pairs(function))
    for join in joins(function) if found else ():
        fitting = [pair for pair in found if _puts_together(function, join, pair)]
        # Code for several layouts has a split for each, often under the same names.
        alike = [pair for pair in fitting if pair.layout == join.layout]
        if fitting:
            yield (alike or fitting)[0], join


def _puts_together(function: FunctionModel, join: Join, pair: Pair) -> bool:
    first, second = (read_by(function, part, pair) for part in join.parts)
    if first | second != {0, 1}:
        return False
    both = len(first) == 2 and len(second) == 2
    return turned(join) or both or ("rot" in function.name and len(first) == len(second) == 1)


def _signs(function: FunctionModel, pair: Pair, join: Join) -> Hits:
    """Look at ``(-second, first)``, and at the products where both parts are written out."""
    kinds = [read_by(function, part, pair) for part in join.parts]
    if kinds in ([{1}, {0}], [{0}, {1}]):
        negative = [isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub) for part in join.parts]
        if any(wave_of(node.operand) == "sin" for node in function.file.index.nodes(ast.UnaryOp, function.node)):
            return
        if kinds != [{1}, {0}] or negative != [True, False]:
            text = f"the turned channels are ({', '.join(map(ast.unparse, join.parts))}), not (-second, first)"
            yield Hit(function.file, join.node, text)
        return
    expected = ({(1, 0, "cos"), (-1, 1, "sin")}, {(1, 0, "sin"), (1, 1, "cos")})
    for part, right in zip(join.parts, expected, strict=True):
        made = _products(function, part, pair)
        if made is not None and made != right:
            yield Hit(function.file, part, "this part of the turned channels is not what a rotation makes of the pair")


def _products(function: FunctionModel, part: ast.expr, pair: Pair) -> set[tuple[int, int, str]] | None:
    """Return sign, part of the pair and wave of each product of a sum of two; None where it is not that plain."""
    if isinstance(part, ast.Name):
        values = [value for name, value in function.assignments if name == part.id]
        part = values[0] if len(values) == 1 else part
    if not isinstance(part, ast.BinOp) or not isinstance(part.op, (ast.Add, ast.Sub)):
        return None
    found = set()
    for sign, product in ((1, part.left), (-1 if isinstance(part.op, ast.Sub) else 1, part.right)):
        if not isinstance(product, ast.BinOp) or not isinstance(product.op, ast.Mult):
            return None
        for one, other in ((product.left, product.right), (product.right, product.left)):
            wave = wave_of(other)
            if isinstance(one, ast.Name) and one.id in pair.names and wave is not None:
                found.add((sign, pair.names.index(one.id), wave))
    return found if len(found) == 2 else None


def _exchanged(function: FunctionModel, rotating: set[FunctionModel]) -> Hits:
    """Look for ``x * sin + turned * cos``, and for a difference in place of the sum."""
    index = function.file.index
    joined = {join.node for join in joins(function) if turned(join)}
    names = {name for name, value in function.assignments if value in joined}
    for total in index.nodes(ast.BinOp, function.node):
        sides = [total.left, total.right]
        if not isinstance(total.op, (ast.Add, ast.Sub)) or not all(_is_product(side) for side in sides):
            continue
        marks = [_factors(function, side, joined, names, rotating) for side in sides]
        turns = [mark for mark in marks if mark[0]]
        if len(turns) != 1 or None in (marks[0][1], marks[1][1]) or marks[0][1] == marks[1][1]:
            continue
        if turns[0][1] == "cos":
            yield Hit(
                function.file, total, "the turned channels are multiplied with the cosine, the others with the sine"
            )
        elif isinstance(total.op, ast.Sub):
            yield Hit(function.file, total, "the turned channels are subtracted: this is the rotation backwards")


def _is_product(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)


def _factors(
    function: FunctionModel, product: ast.expr, joined: set[ast.expr], names: set[str], rotating: set[FunctionModel]
) -> tuple[bool, str | None]:
    """Return whether a product has the turned channels in it, and which wave it is multiplied with."""
    assert isinstance(product, ast.BinOp)
    turns, wave = False, None
    for factor in (product.left, product.right):
        wave = wave_of(factor) or wave
        called = resolve(function.file, factor) if isinstance(factor, ast.Call) else None
        turns = turns or factor in joined or (isinstance(factor, ast.Name) and factor.id in names)
        turns = turns or (called in rotating and called is not function and len(_returned(called)) == 1)
    return turns, wave


def _returned(function: object) -> list[ast.expr]:
    values = [item.value for item in function.returns] if isinstance(function, FunctionModel) else []
    return [value for value in values if isinstance(value, ast.Call)]


def _unpacked(functions: list[FunctionModel]) -> Hits:
    """Look for ``sin, cos = tables`` where tables are made as ``(cos, sin)``."""
    made = {order for function in functions if (order := _order([i.value for i in function.returns])) is not None}
    if len(made) != 1:
        return
    for function in functions:
        for statement in function.file.index.nodes(ast.Assign, function.node):
            target = statement.targets[0]
            names = [wave_of(item) for item in target.elts] if isinstance(target, ast.Tuple) else []
            # What is computed right here is in the order in which it is computed.
            if len(names) == 2 and set(names) == {"cos", "sin"} and not isinstance(statement.value, ast.Tuple):
                if not _computes(statement.value) and (names[0], names[1]) not in made:
                    yield Hit(function.file, target, f"the tables are made as ({', '.join(map(str, names[::-1]))})")


def _computes(value: ast.expr) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in ("cos", "sin") for node in ast.walk(value))


def _order(values: list[ast.expr | None]) -> tuple[str | None, str | None] | None:
    if len(values) != 1 or not isinstance(values[0], ast.Tuple) or len(values[0].elts) != 2:
        return None
    first, second = (wave_of(item) for item in values[0].elts)
    return (first, second) if {first, second} == {"cos", "sin"} else None


_CODE = """def rotary_tables(positions: Tensor, size: int) -> tuple[Tensor, Tensor]:
    rates = 10000.0 ** -(torch.arange(0, size, 2, device=positions.device) / size)
    angles = positions.float()[:, :, None] * rates
    angles = {tables}
    return angles.cos(), angles.sin()


def apply_rotary(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    {unpacked} = tables
    {split}
    return {made}


class ToyMLP("""
_RIGHT = {
    "tables": "torch.cat((angles, angles), dim=-1)",
    "unpacked": "cos, sin",
    "split": "first, second = x.chunk(2, dim=-1)",
    "made": "x * cos + torch.cat((-second, first), dim=-1) * sin",
}
_FORWARD = "        for layer in self.layers:\n"
_NEIGHBOURS = "first, second = x[..., 0::2], x[..., 1::2]"
_STACKED = "x * cos + torch.stack((-second, first), dim=-1).flatten(-2) * sin"
_WRITTEN = "torch.cat((first * cos - second * sin, {}), dim=-1)"


def _example(title: str, **parts: str) -> Example:
    changes = [
        ("class ToyMLP(", _CODE.format(**{**_RIGHT, **parts})),
        (
            _FORWARD,
            "        places = torch.arange(latents.shape[1], device=device)[None]\n"
            "        latents = apply_rotary(latents, rotary_tables(places, latents.shape[2]))\n" + _FORWARD,
        ),
    ]
    return Example(title, {"model": changes})


FAILING = (
    _example("split as neighbours, joined by halves", split=_NEIGHBOURS.replace("= x", "= «x") + "»"),
    _example("split by halves, joined as neighbours", made=_STACKED, split="first, second = «x.chunk(2, dim=-1)»"),
    _example("tables for neighbours", tables="«angles.repeat_interleave(2, dim=-1)»"),
    _example("the sign on the other part", made="x * cos + «torch.cat((second, -first), dim=-1)» * sin"),
    _example("the parts in their order", made="x * cos + «torch.cat((-first, second), dim=-1)» * sin"),
    _example("cosine and sine exchanged", made="«x * sin + torch.cat((-second, first), dim=-1) * cos»"),
    _example("turned backwards", made="«x * cos - torch.cat((-second, first), dim=-1) * sin»"),
    _example("unpacked in another order", unpacked="«sin, cos»"),
    _example("written out, with a wrong sign", made=_WRITTEN.format("«first * sin - second * cos»")),
)
PASSING = (
    _example("by halves"),
    _example("as neighbours", split=_NEIGHBOURS, made=_STACKED, tables="angles.repeat_interleave(2, dim=-1)"),
    _example(
        "as neighbours, by unbind",
        split="first, second = x.unflatten(-1, (-1, 2)).unbind(-1)",
        made=_STACKED,
        tables="torch.stack((angles, angles), dim=-1).flatten(-2)",
    ),
    _example("by slices", split="size = x.shape[-1] // 2\n    first, second = x[..., :size], x[..., size:]"),
    _example("written out", made=_WRITTEN.format("second * cos + first * sin")),
    _example("the sign in the sine", made="x * cos + torch.cat((second, -first), dim=-1) * -sin"),
    _example(
        "code for both layouts",
        split="if x.shape[-1] % 4:\n        "
        + _NEIGHBOURS
        + "\n        turned = torch.stack((-second, first), dim=-1).flatten(-2)\n    else:\n"
        "        first, second = x.chunk(2, dim=-1)\n        turned = torch.cat((-second, first), dim=-1)",
        made="x * cos + turned * sin",
    ),
    Example("no rotation"),
)
