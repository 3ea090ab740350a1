"""Settings of a request that change what is generated, and what they are when nobody gives them."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.guidance import plain_parts
from scaffold.inspect.program import Program, once
from scaffold.inspect.program.algebra import options, reach_last, walk
from scaffold.inspect.program.numeric import MISSING, default_of
from scaffold.inspect.program.values import Conf, Const, Param

ORDER = 15
KEYS = ("detail.request.settings", "detail.request.default_seed")


def answers(program: Program) -> dict[str, Fact]:
    """``settings``: extra arguments with one plain default, by name; ``default_seed``: the constant used without one.

    An argument whose default a file beside the weights decides has none, nor has one that is read with several.
    """
    facts: dict[str, Fact] = {}
    found: dict[str, tuple[object, Evidence | None]] = {}
    unsettled: set[str] = set()
    for node in parameters(program):
        if node.root == "extra_args" and "." not in node.key and node.default is not None:
            known = default_of(node.default)
            if known is MISSING:
                unsettled.add(node.key)
            if not isinstance(known, (bool, int, float, str)):
                continue
            first = found.setdefault(node.key, (known, node.at))[0]
            if first != known or any(isinstance(part, Conf) for part in plain_parts(node.default)):
                unsettled.add(node.key)
    if found:
        values = {name: value for name, (value, _) in sorted(found.items()) if name not in unsettled}
        facts[KEYS[0]] = fact(values, [at for _, at in found.values()])
    for record in program.trace.calls:
        if record.method != "manual_seed" or not record.args:
            continue
        given = record.args[0]
        if any(isinstance(n, Param) and n.key.rpartition(".")[2] == "seed" for n in walk(given)):
            constants = [o.value for o in options(given) if isinstance(o, Const) and type(o.value) is int]
            if len(constants) == 1:
                facts[KEYS[1]] = fact(constants[0], [record.at, given.at])
    return facts


def parameters(program: Program) -> list[Param]:
    """Return everything of the request and the options that calls and tests of the run depend on, each once."""
    return _parameters(program, len(program.trace.calls), len(program.trace.tests))


@once
def _parameters(program: Program, calls: int, tests: int) -> list[Param]:
    """The same of the first calls and tests, to which others may be added."""
    values = [v for r in program.trace.calls[:calls] for v in (*r.args, *r.kwargs.values(), r.result)]
    values += [test.cond for test in program.trace.tests[:tests]]
    return [node for node in reach_last(values, lambda node: node.parts()) if isinstance(node, Param)]
