"""Objects and arguments that are filled from data which the source does not hold, such as ``Config(**json.load(f))``.

Whatever the data may name has the data's value; a default counts only where the data says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaffold.inspect.program.algebra import options, reach
from scaffold.inspect.program.values import Attr, Call, Conf, Const, Elem, Item, Map, Obj, Op, Param
from scaffold.source.values import Evidence, External, Func, Value

if TYPE_CHECKING:
    import ast

    from scaffold.inspect.program.core import Execution

SPREAD, ANY_KEY = "**", "*"
"""Keys under which a dictionary holds another one's entries, and entries with unknown keys."""
NO_FILE = ""
"""Stands for the name of a file that the source does not give."""
_PLAIN = (Const, Conf, Param, Item)
_READERS = frozenset(("load", "loads", "safe_load", "full_load", "get_hf_file_to_dict", "to_container", "literal_eval"))


class OutsideData:
    """What files and other data outside the source may set."""

    def __init__(self, run: Execution) -> None:
        self.run = run

    def data_of(self, value: Value | None) -> Value | None:
        """Return the data that a dictionary, or what is made of it, holds; None where it holds none."""
        for option in options(value):
            if isinstance(option, Op) and option.op == "|" and any(self.data_of(part) for part in option.args):
                return option
            for node in reach([option], _inside):
                if isinstance(node, Conf) or (isinstance(node, Call) and _reads(node)):
                    return node
        return None

    def entry(self, data: Value, name: str, default: Value | None, at: Evidence | None) -> Value:
        """Return what stands under a name in the data, or ``default`` where nothing does."""
        if isinstance(data, Conf):
            return self.run.items.conf_item(data, name, default, at)
        return Conf(NO_FILE, (name,), default, at=at)

    def arguments(self, func: Func, given: dict[str, Value], taken: int) -> dict[str, Value]:
        """Return the keyword arguments of a call, with those that ``**data`` may bring.

        Args:
            func: what is called.
            given: keyword arguments by name, the spread one under ``**``.
            taken: how many parameters are given by position.
        """
        data = self.data_of(given.get(SPREAD))
        if data is None:
            return given
        spec = func.node.args
        names = [*spec.posonlyargs, *spec.args]
        first = taken + (func.bound is not None)
        defaults: dict[str, ast.expr] = {
            a.arg: d for a, d in zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True)
        }
        defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
        brought = {}
        for argument in [*names[first:], *spec.kwonlyargs]:
            default = defaults.get(argument.arg)
            value = self.run.interpreter.evaluate_global(default, func.module) if default is not None else None
            brought[argument.arg] = self.entry(data, argument.arg, value, func.module.place(argument))
        return {**brought, **given}

    def fill(self, target: Obj, data: Value) -> None:
        """Let data set attributes of an object: existing ones, and any that are read later."""
        self.over(target.attrs, data)
        target.filled = data

    def changed(self, value: Value) -> Value:
        """Return a module's object that its text changes behind its definition; what stands in a table may be other."""
        if isinstance(value, Map):
            self.over(value.items, Conf(NO_FILE, (), None))
        return value

    def over(self, known: dict[Any, Value], data: Value) -> None:
        """Let data replace the plain values of a dictionary."""
        for name, value in known.items():
            if isinstance(name, str) and name not in (SPREAD, ANY_KEY) and _is_plain(value):
                known[name] = self.entry(data, name, value, value.at)


def _is_plain(value: Value) -> bool:
    """Whether a value is a setting, made of a request's or a file's perhaps, that data may have in its place."""
    made = isinstance(value, Call) and value.name in ("float", "int", "bool", "str", "tuple", "list")
    return isinstance(value, (*_PLAIN, Op)) or made


def _inside(node: Value) -> list[Value]:
    """Return what a dictionary was made of, through its methods and the turns of loops over it."""
    if isinstance(node, Map):
        return [node.items[key] for key in (SPREAD, ANY_KEY) if key in node.items] + node.unkeyed
    if isinstance(node, Elem):
        return [node.source]
    if isinstance(node, (Item, Attr)):
        return [node.base]
    if isinstance(node, Call):
        return [node.func, *node.args] if isinstance(node.func, (Attr, External)) else []
    return []


def _reads(call: Call) -> bool:
    """Tell whether a call outside the source reads or parses something, by the names of the field."""
    return isinstance(call.func, External) and call.name in _READERS
