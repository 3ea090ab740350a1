"""Methods of lists, dictionaries, strings and tensors."""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import TYPE_CHECKING

from scaffold.inspect.program.algebra import is_none, join, options
from scaffold.inspect.program.values import NONE, Choice, Conf, Const, Elem, Map, Obj, Param, Seq, Slice
from scaffold.limits.bounded import method
from scaffold.source.frame import Frame
from scaffold.source.values import ClassRef, Evidence, External, Func, Super, Value

if TYPE_CHECKING:
    from scaffold.inspect.program.core import Execution


IDENTITY_METHODS = frozenset(
    [
        "to",
        "cuda",
        "cpu",
        "contiguous",
        "clone",
        "detach",
        "float",
        "double",
        "half",
        "bfloat16",
        "tolist",
        "item",
        "type",
        "numpy",
        "requires_grad_",
        "eval",
        "pin_memory",
        "long",
        "int",
    ]
)


MODULE_METHODS = frozenset(
    ["to", "cuda", "cpu", "float", "double", "half", "bfloat16", "type", "requires_grad_", "eval", "train"]
)
"""Methods of ``torch.nn.Module`` that return the module."""
_STRING_EDITS = frozenset(
    ["replace", "removeprefix", "removesuffix", "lstrip", "rstrip", "strip", "split", "lower", "format"]
)


class Containers:
    """Results of methods of plain values, where they are known."""

    def __init__(self, run: Execution) -> None:
        self.run, self.path = run, run.path

    def sequence(self, kind: str, items: list[Value], exact: bool, at: Evidence | None) -> Seq:
        return Seq("list" if kind == "generator" else kind, items, exact, self.path.depth, at=at)

    def table(self, pairs: list[tuple[Value | None, Value]], at: Evidence | None) -> Map:
        """A dictionary as it is written; without a key, another one is spread in it."""
        result = Map({}, depth=self.path.depth, at=at)
        for key, value in pairs:
            if isinstance(key, Const) and key.value.__hash__ is not None:
                result.items[key.value] = value
            elif key is not None:
                result.exact = False
                result.unkeyed.append(value)
            elif isinstance(value, Map):
                result.items.update(value.items)
                result.exact = result.exact and value.exact
            else:
                data = self.run.outside.data_of(value)
                if data is not None:
                    self.run.outside.over(result.items, data)
                result.exact = False
                result.items.setdefault("**", value)
        return result

    def mapping(self, rows: list[list[Value]], exact: bool, at: Evidence | None) -> Map:
        """A dictionary of keys and values that were worked out."""
        result = Map({}, exact, self.path.depth, at=at)
        for key, value in rows:
            if isinstance(key, Const) and key.value.__hash__ is not None:
                result.items[key.value] = value
            else:
                result.exact = False
                result.items.setdefault("*", value)
        return result

    @staticmethod
    def slice(parts: list[Value | None], at: Evidence | None) -> Slice:
        return Slice(*parts, at=at)

    @staticmethod
    def open_items(value: Value, at: Evidence | None) -> list[Value]:
        """Return the symbol for the items of a value whose items are unknown."""
        return [Elem(value, -1, at=at)]

    def grow(self, kind: type[ast.operator], old: Value, value: Value) -> bool:
        """``old += value`` in place, where it is that."""
        if kind is not ast.Add or not isinstance(old, Seq):
            return False
        self.extend(old, value)
        return True

    def extend(self, seq: Seq, added: Value) -> None:
        known = self.iterate(added)
        items = known if known is not None else self.open_items(added, added.at)
        for item in items:
            self.append(seq, item)
        if known is None or len(seq.items) < len(items):
            seq.exact = False

    def append(self, seq: Seq, item: Value) -> None:
        if self.path.loops:
            seq.appends.append((item, self.path.loops[-1]))
        if self.path.depth > seq.depth:
            seq.exact = False
        if len(seq.items) < 256:
            seq.items.append(item)

    def unpack(self, targets: list[ast.expr], value: Value, frame: Frame) -> None:
        """Assign the items of a value to several names."""
        assign = self.run.interpreter.assign
        star = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
        known = self.iterate(value)
        if known is not None and star is None and len(known) == len(targets):
            for target, item in zip(targets, known, strict=True):
                assign(target, item, frame)
            return
        for position, target in enumerate(targets):
            if star is not None and position == star:
                assign(target, Elem(value, -1, at=value.at), frame)
            else:
                index = position if star is None or position < star else position - len(targets)
                assign(target, self.run.get_item(value, Const(index), self.run.place(target, frame)), frame)

    def iterate(self, value: Value) -> list[Value] | None:
        """The items of a value whose items are all known."""
        if isinstance(value, Seq):
            return list(value.items) if value.exact else None
        if isinstance(value, Map):
            return [Const(k) for k in value.items] if value.exact else None
        if isinstance(value, Const) and isinstance(value.value, (str, tuple, list)):
            return [Const(v) for v in value.value] if len(value.value) <= 64 else None
        if isinstance(value, Choice):
            rows = [self.iterate(o) for o in options(value) if not is_none(o)]
            first = rows[0] if rows else None
            if first is not None and all(r is not None and len(r) == len(first) for r in rows):
                columns = zip(*[r for r in rows if r is not None], strict=True)
                return [join(list(column), value.cond if len(rows) == 2 else None) for column in columns]
        return None

    def builtin_method(
        self, receiver: Value, name: str, args: list[Value], kwargs: dict[str, Value], at: Evidence | None
    ) -> Value | None:
        """The result of a method of a plain value, where it is known."""
        if isinstance(receiver, Seq):
            return self._list_method(receiver, name, args, at)
        if isinstance(receiver, Map):
            return self._dict_method(receiver, name, args, kwargs, at)
        if isinstance(receiver, Const) and isinstance(receiver.value, str):
            return self._string_method(receiver.value, name, args, at)
        if name == "setdefault" and len(args) == 2 and isinstance(receiver, Param):
            self.run.items.put_param(receiver, args[0], args[1])
            return self._get(receiver, args, at)
        if name == "get" and args and isinstance(receiver, (Param, Conf, Choice)):
            found = self._get(receiver, args, at)
            if found is not None:
                return found
        if isinstance(receiver, Obj) and name in MODULE_METHODS and (receiver.cls.is_module or receiver.json_file):
            # A module's own ``to`` is followed; the inherited one moves the module and returns it.
            return receiver if receiver.cls.find_method(name) is None else None
        if isinstance(receiver, Super):
            held = receiver.obj
            inherited = isinstance(held, Obj) and held.cls.find_method(name, after=receiver.owner) is None
            return held if inherited and name in MODULE_METHODS else None
        if isinstance(receiver, (Obj, ClassRef, External, Func)):
            return None
        if name in IDENTITY_METHODS:
            return receiver
        if name in _STRING_EDITS:
            result = self.run.opaque(self.run.symbol_attr(receiver, name, at), args, kwargs, at)
            self.run.operations.note_edit(result)
            return result
        return None

    def _get(self, receiver: Value, args: list[Value], at: Evidence | None) -> Value | None:
        key = args[0]
        default = args[1] if len(args) > 1 else NONE
        if not isinstance(key, Const) or not isinstance(key.value, str):
            return None
        if isinstance(receiver, Param):
            result = self.run.items.param_item(receiver, key.value, default, at)
            return result if isinstance(result, Param) else None
        if isinstance(receiver, Conf):
            return self.run.items.conf_item(receiver, key.value, default, at)
        if not isinstance(receiver, Choice):
            return None
        held = [o for o in options(receiver) if not is_none(o)]
        found = [
            self._get(o, args, at) if isinstance(o, (Param, Conf)) else self.builtin_method(o, "get", args, {}, at)
            for o in held[:4]
        ]
        if len(held) > 4 or not any(f is not None for f in found):
            return None
        # What one of them holds is not known, and so not left out.
        known = [self.run.symbol_item(o, key, at) if f is None else f for o, f in zip(held, found, strict=True)]
        return join(known, receiver.cond if len(receiver.options) == len(held) == 2 else None, at)

    def _list_method(self, seq: Seq, name: str, args: list[Value], at: Evidence | None) -> Value | None:
        if name in ("append", "add") and args:
            self.append(seq, args[0])
            return NONE
        if name in ("extend", "update") and args:
            self.extend(seq, args[0])
            return NONE
        if name == "insert" and len(args) == 2:
            seq.items.insert(0, args[1])
            seq.exact = seq.exact and isinstance(args[0], Const) and args[0].value == 0
            return NONE
        if name == "copy":
            return Seq(seq.kind, list(seq.items), seq.exact, self.path.depth, at=at)
        if name == "pop" and seq.exact and seq.items:
            return seq.items[-1]
        if name in ("clear", "sort", "remove", "reverse", "discard"):
            seq.exact = False
            return NONE
        return None

    def _dict_method(
        self, table: Map, name: str, args: list[Value], kwargs: dict[str, Value], at: Evidence | None
    ) -> Value | None:
        if name in ("get", "pop", "setdefault") and args:
            key = args[0]
            default = args[1] if len(args) > 1 else NONE
            if isinstance(key, Const) and isinstance(key.value, (str, int, float, tuple, type(None))):
                if key.value in table.items:
                    return table.items[key.value]
                if name == "setdefault":
                    self.run.set_item(table, key, default)
                    return default
                if table.exact:
                    return default
                if "**" in table.items:
                    return self._get(table.items["**"], args, at)
                data = self.run.outside.data_of(table)
                if data is not None and isinstance(key.value, str):
                    return self.run.outside.entry(data, key.value, default, at)
            elif name == "setdefault":
                # The key is unknown: one entry represents all that are added this way.
                table.exact = False
                return table.items.setdefault("*", default)
            return None
        if name == "items" and table.exact:
            return Seq("list", [Seq("tuple", [Const(k), v]) for k, v in table.items.items()], at=at)
        if name == "keys" and table.exact:
            return Seq("list", [Const(k) for k in table.items], at=at)
        if name == "values":
            return Seq("list", list(table.items.values()), table.exact, self.path.depth, at=at)
        if name == "update":
            for source in [*args, Map(dict(kwargs))]:
                data = self.run.outside.data_of(source)
                if data is not None:
                    self.run.outside.over(table.items, data)
                    table.items["**"] = data
                    if table.owner is not None:
                        self.run.outside.fill(table.owner, data)
                if isinstance(source, Map):
                    for key_name, value in source.items.items():
                        self.run.set_item(table, Const(key_name), value)
                    table.exact = table.exact and source.exact
                else:
                    table.exact = False
            return NONE
        if name == "copy":
            return Map(dict(table.items), table.exact, self.path.depth, at=at)
        return None

    @staticmethod
    def _string_method(text: str, name: str, args: list[Value], at: Evidence | None) -> Value | None:
        known = ("replace", "removeprefix", "removesuffix", "lower", "upper", "strip", "lstrip", "rstrip", "startswith",
                 "endswith", "split", "title")  # fmt: skip
        if name in known and all(isinstance(a, Const) for a in args):
            try:
                result = method(text, name, *[a.value for a in args if isinstance(a, Const)])
            except (TypeError, ValueError):
                return None
            if isinstance(result, list):
                return Seq("list", [Const(r) for r in result], at=at)
            return Const(result, at=at)
        if name == "join" and len(args) == 1 and isinstance(args[0], Seq) and args[0].exact:
            items = args[0].items
            if all(isinstance(i, Const) and isinstance(i.value, str) for i in items):
                with suppress(ValueError):
                    return Const(method(text, "join", [i.value for i in items if isinstance(i, Const)]), at=at)
        return None
