"""The only sizes that images can have, where the pipeline takes the nearest of a table."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.values import Call, Const, Seq
from scaffold.source.values import Value

ORDER = 10
KEYS = ("detail.image.sizes", "detail.image.sizes_constant", "detail.image.sizes_module")
_NOISE = frozenset(("randn", "randn_tensor"))


def answers(program: Program) -> dict[str, Fact]:
    """``[height, width]`` of each entry of the table, and the module and the name under which it stands.

    Established where height and width of the initial noise are numbers out of one table of pairs, and the request
    asked for a size.
    """
    loop = program.denoising
    asked = {key for (root, key) in program.trace.reads if root == "sampling_params"} & {"height", "width"}
    if loop is None or loop.sample is None or loop.sample.init is None or len(asked) != 2:
        return {}
    for node in walk(loop.sample.init):
        if isinstance(node, Call) and node.name in _NOISE and node.args and isinstance(node.args[0], Seq):
            height, width = (_numbers(side) for side in node.args[0].items[-2:])
            if height and width and (found := _table(program, height, width)) is not None:
                return found
    return {}


def _numbers(value: Value) -> list[Const]:
    """All values of a side; empty where one of them is not a number."""
    found = [o for o in options(value) if isinstance(o, Const) and type(o.value) is int]
    return found if len(found) == len(options(value)) else []


def _table(program: Program, height: list[Const], width: list[Const]) -> dict[str, Fact] | None:
    module = program.cls.module
    for name, node in module.definitions.items():
        value = program.scopes.lookup(module, name)
        pairs = [_pair(item) for item in value.items] if isinstance(value, Seq) else []
        if len(pairs) < 2 or not all(pairs):
            continue
        columns = [{id(pair[place]) for pair in pairs} for place in (0, 1)]
        given = {id(n) for n in height}, {id(n) for n in width}
        # The very numbers of a column, not equal ones: a table of both orientations holds the same numbers in both.
        if given[0] <= columns[0] and given[1] <= columns[1]:
            sizes = [[first.value, second.value] for first, second in pairs]
        elif given[0] <= columns[1] and given[1] <= columns[0]:
            sizes = [[second.value, first.value] for first, second in pairs]
        else:
            continue
        place = Evidence(module.file, node.lineno)
        return {
            "detail.image.sizes": fact(sizes, [place]),
            "detail.image.sizes_constant": fact(name, [place]),
            "detail.image.sizes_module": fact(module.name, [place]),
        }
    return None


def _pair(value: Value) -> tuple[Const, ...]:
    """The two whole numbers of an entry; empty where it is something else."""
    items = tuple(i for i in value.items if isinstance(i, Const)) if isinstance(value, Seq) else ()
    return items if len(items) == 2 and all(type(i.value) is int for i in items) else ()
