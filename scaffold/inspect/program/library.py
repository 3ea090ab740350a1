"""What is known of builtins and of methods of plain values."""

from __future__ import annotations

import re
from typing import Any

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program.core import Frame
from scaffold.inspect.program.statements import Statements
from scaffold.inspect.program.trace import StringEdit
from scaffold.inspect.program.values import (
    NONE,
    Attr,
    Call,
    Choice,
    ClassRef,
    Conf,
    Const,
    Elem,
    External,
    Func,
    Map,
    Obj,
    Op,
    Param,
    Seq,
    Unknown,
    Value,
    is_none,
    join,
    options,
)

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
"""Methods of tensors that leave the numbers as they are."""
_CASTS = frozenset(("int", "float", "str", "bool"))
_STRING_EDITS = frozenset(
    ["replace", "removeprefix", "removesuffix", "lstrip", "rstrip", "strip", "split", "lower", "format"]
)
_COPIES = frozenset(("copy.deepcopy", "copy.copy"))
_WORLD = re.compile(r"get_\w*(world_size|_size)$")
_RANK = re.compile(r"get_\w*rank$")


class Library(Statements):
    """Builtins, containers, strings, casts, configuration files."""

    def file_name(self, value: Value | None) -> str | None:
        """The last part of a path expression, as text."""
        if isinstance(value, Const) and isinstance(value.value, str):
            return value.value
        if isinstance(value, Call) and value.name == "join" and value.args:
            parts = [self.file_name(a) for a in value.args[1:]]
            return "/".join(p for p in parts if p) or None if all(parts) else parts[-1]
        if isinstance(value, Op) and value.op in ("/", "format", "+") and value.args:
            last = self.file_name(value.args[-1])
            return last.lstrip("/") if last else None
        if isinstance(value, Call) and value.args:
            return self.file_name(value.args[-1])
        return None

    def iterate(self, value: Value) -> list[Value] | None:
        """The items of a value whose items are all known."""
        if isinstance(value, Seq):
            return list(value.items) if value.exact else None
        if isinstance(value, Map):
            return [Const(k) for k in value.items] if value.exact else None
        if isinstance(value, Const) and isinstance(value.value, str | tuple | list):
            return [Const(v) for v in value.value] if len(value.value) <= 64 else None
        if isinstance(value, Choice):
            rows = [self.iterate(o) for o in options(value) if not is_none(o)]
            first = rows[0] if rows else None
            if first is not None and all(r is not None and len(r) == len(first) for r in rows):
                columns = zip(*[r for r in rows if r is not None], strict=True)
                return [join(list(column), value.cond if len(rows) == 2 else None) for column in columns]
        return None

    def call_library(
        self, path: str, args: list[Value], kwargs: dict[str, Value], at: Evidence | None, frame: Frame | None
    ) -> Value | None:
        """The result of a call outside the source, where it is known."""
        if path in _COPIES and args:
            return self._copy(args[0], path == "copy.deepcopy", {})
        if path == "json.load" and args:
            handle = args[0]
            name = self.file_name(handle.args[0]) if isinstance(handle, Call) and handle.args else None
            return Conf(name, (), at=at) if name else None
        if path in ("dataclasses.asdict", "vars") and args:
            return None
        if not path.startswith("builtins."):
            return None
        handler = getattr(self, "_builtin_" + path.removeprefix("builtins."), None)
        if handler is not None:
            result: Value | None = handler(args, kwargs, at)
            return result
        name = path.removeprefix("builtins.")
        if name in _CASTS and len(args) == 1:
            return self._cast(name, args[0], at)
        return None

    def _cast(self, name: str, value: Value, at: Evidence | None) -> Value:
        if isinstance(value, Const):
            try:
                return Const({"int": int, "float": float, "str": str, "bool": bool}[name](value.value), at=at)
            except (TypeError, ValueError, OverflowError):
                return Unknown("cast fails", at=at)
        return value

    def _copy(self, value: Value, deep: bool, done: dict[int, Value]) -> Value:
        if id(value) in done:
            return done[id(value)]
        if isinstance(value, Map):
            result = done[id(value)] = Map({}, value.exact, self.depth, at=value.at)
            for key, item in value.items.items():
                result.items[key] = self._copy(item, deep, done) if deep else item
            return result
        if isinstance(value, Seq):
            copied = done[id(value)] = Seq(value.kind, [], value.exact, self.depth, at=value.at)
            copied.items.extend(self._copy(i, deep, done) if deep else i for i in value.items)
            return copied
        return value

    def _builtin_getattr(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        if len(args) < 2 or not isinstance(args[1], Const) or not isinstance(args[1].value, str):
            return None
        base, name = args[0], args[1].value
        value = self.get_attr(base, name, at)
        if len(args) == 2:
            return value
        default = args[2]
        if isinstance(base, Obj) and isinstance(value, Attr):
            if base.cls.external_bases or any(c.external_bases for c in base.cls.mro):
                return join([value, default], None, at)
            return default
        if isinstance(value, Param) and value.default is None and isinstance(base, Obj):
            return Param(value.root, value.key, default, at=at)
        if isinstance(value, Attr | Unknown):
            return default if isinstance(value, Unknown) else join([value, default], None, at)
        return value

    def _builtin_hasattr(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        if len(args) == 2 and isinstance(args[0], Obj) and isinstance(args[1], Const):
            value = self.get_attr(args[0], str(args[1].value), at)
            if not isinstance(value, Attr):
                return Const(True, at=at)
            if not any(c.external_bases for c in args[0].cls.mro):
                return Const(False, at=at)
        return None

    def _builtin_setattr(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        if len(args) == 3 and isinstance(args[1], Const):
            self.set_attr(args[0], str(args[1].value), args[2])
            return NONE
        return None

    def _builtin_isinstance(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        if len(args) != 2:
            return None
        value = args[0]
        wanted = args[1].items if isinstance(args[1], Seq) else [args[1]]
        if isinstance(args[1], Op) and args[1].op == "|":
            wanted = args[1].args
        names = {w.path.rpartition(".")[2] for w in wanted if isinstance(w, External)}
        classes = [w.cls for w in wanted if isinstance(w, ClassRef)]
        if isinstance(value, Param) and value.root == "prompt" and not value.key:
            # The trainer sends a dictionary.
            return Const("dict" in names or bool(names & {"Mapping", "MutableMapping"}), at=at)
        if isinstance(value, Param) and value.root == "prompt" and value.key == "prompt":
            return Const("str" in names, at=at)
        if isinstance(value, Obj):
            if any(c in value.cls.mro for c in classes):
                return Const(True, at=at)
            if not names and classes and len(classes) == len(wanted):
                return Const(False, at=at)
            return Const(False, at=at) if names and names <= {"str", "list", "tuple", "dict", "int", "float"} else None
        if isinstance(value, Seq) and names <= {"list", "tuple", "str", "dict", "set"} and names:
            return Const(value.kind in names, at=at)
        if isinstance(value, Map) and names <= {"list", "tuple", "str", "dict", "set"} and names:
            return Const("dict" in names, at=at)
        if isinstance(value, Const) and names and not classes:
            return Const(any(type(value.value).__name__ == n for n in names), at=at)
        return None

    def _builtin_len(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        if len(args) == 1 and isinstance(args[0], Seq | Map) and args[0].exact:
            return Const(len(args[0].items), at=at)
        if len(args) == 1 and isinstance(args[0], Const) and isinstance(args[0].value, str | tuple):
            return Const(len(args[0].value), at=at)
        return None

    def _builtin_dict(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        result = Map({}, depth=self.depth, at=at)
        if args:
            if isinstance(args[0], Map):
                result.items.update(args[0].items)
                result.exact = args[0].exact
            elif isinstance(args[0], Param | Conf | Choice):
                return args[0] if not kwargs else Map({**kwargs, "**": args[0]}, False, self.depth, at=at)
            else:
                result.exact = False
        for key, value in kwargs.items():
            if key == "**":
                result.exact = False
            result.items[key] = value
        return result

    def _builtin_list(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        return self._to_sequence("list", args, at)

    def _builtin_tuple(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        return self._to_sequence("tuple", args, at)

    def _builtin_set(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        return self._to_sequence("set", args, at)

    def _to_sequence(self, kind: str, args: list[Value], at: Evidence | None) -> Value:
        if not args:
            return Seq(kind, [], depth=self.depth, at=at)
        known = self.iterate(args[0])
        if known is not None:
            return Seq(kind, known, depth=self.depth, at=at)
        return args[0]

    def _builtin_zip(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        columns = [self.iterate(a) for a in args]
        if args and all(c is not None for c in columns):
            rows = zip(*[c for c in columns if c is not None], strict=False)
            return Seq("list", [Seq("tuple", list(row)) for row in rows], at=at)
        return None

    def _builtin_enumerate(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        known = self.iterate(args[0]) if args else None
        if known is not None and len(args) == 1 and not kwargs:
            return Seq("list", [Seq("tuple", [Const(i), v]) for i, v in enumerate(known)], at=at)
        return None

    def _builtin_range(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        numbers: list[Any] = [a.value for a in args if isinstance(a, Const) and isinstance(a.value, int)]
        if args and len(numbers) == len(args) and len(args) <= 3:
            try:
                turns = range(*numbers)
            except ValueError:
                return None
            if len(turns) <= 8:
                return Seq("list", [Const(i) for i in turns], at=at)
        return None

    def _builtin_reversed(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        known = self.iterate(args[0]) if args else None
        return Seq("list", known[::-1], at=at) if known is not None else None

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
        if name == "get" and args and isinstance(receiver, Param | Conf | Choice):
            found = self._get(receiver, args, at)
            if found is not None:
                return found
        if isinstance(receiver, Obj | ClassRef | External | Func):
            return None
        if name in IDENTITY_METHODS:
            return receiver
        if name in _STRING_EDITS:
            result = self.opaque(self.symbol_attr(receiver, name, at), args, kwargs, at)
            row = self.rows[-1] if self.rows else None
            self.trace.edits.append(StringEdit(result, tuple(self.conditions), row))
            return result
        return None

    def _get(self, receiver: Value, args: list[Value], at: Evidence | None) -> Value | None:
        key = args[0]
        default = args[1] if len(args) > 1 else NONE
        if not isinstance(key, Const) or not isinstance(key.value, str):
            return None
        if isinstance(receiver, Param):
            result = self.param_item(receiver, key.value, default, at)
            return result if isinstance(result, Param) else None
        if isinstance(receiver, Conf):
            return Conf(receiver.file, (*receiver.path, key.value), default, at=at)
        if not isinstance(receiver, Choice):
            return None
        found = [
            self._get(o, args, at) if isinstance(o, Param | Conf) else self.builtin_method(o, "get", args, {}, at)
            for o in options(receiver)[:4]
        ]
        real = [f for f in found if f is not None]
        return join(real, None, at) if real else None

    def _list_method(self, seq: Seq, name: str, args: list[Value], at: Evidence | None) -> Value | None:
        if name == "append" and args:
            self.append(seq, args[0])
            return NONE
        if name == "extend" and args:
            self.extend(seq, args[0])
            return NONE
        if name == "add" and args:
            self.append(seq, args[0])
            return NONE
        if name == "update" and args:
            self.extend(seq, args[0])
            return NONE
        if name == "insert" and len(args) == 2:
            seq.items.insert(0, args[1])
            seq.exact = seq.exact and isinstance(args[0], Const) and args[0].value == 0
            return NONE
        if name == "copy":
            return Seq(seq.kind, list(seq.items), seq.exact, self.depth, at=at)
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
            if isinstance(key, Const) and isinstance(key.value, str | int | float | tuple | type(None)):
                if key.value in table.items:
                    return table.items[key.value]
                if name == "setdefault":
                    self.set_item(table, key, default)
                    return default
                if table.exact:
                    return default
                if "**" in table.items:
                    return self._get(table.items["**"], args, at)
            return None
        if name == "items" and table.exact:
            return Seq("list", [Seq("tuple", [Const(k), v]) for k, v in table.items.items()], at=at)
        if name == "keys" and table.exact:
            return Seq("list", [Const(k) for k in table.items], at=at)
        if name == "values" and table.exact:
            return Seq("list", list(table.items.values()), at=at)
        if name == "update":
            for source in [*args, Map(dict(kwargs))]:
                if isinstance(source, Map):
                    for key_name, value in source.items.items():
                        self.set_item(table, Const(key_name), value)
                    table.exact = table.exact and source.exact
                else:
                    table.exact = False
            return NONE
        if name == "copy":
            return Map(dict(table.items), table.exact, self.depth, at=at)
        return None

    @staticmethod
    def _string_method(text: str, name: str, args: list[Value], at: Evidence | None) -> Value | None:
        known = ("replace", "removeprefix", "removesuffix", "lower", "upper", "strip", "lstrip", "rstrip", "startswith",
                 "endswith", "split", "title")  # fmt: skip
        if name in known and all(isinstance(a, Const) for a in args):
            try:
                result = getattr(text, name)(*[a.value for a in args if isinstance(a, Const)])
            except (TypeError, ValueError):
                return None
            if isinstance(result, list):
                return Seq("list", [Const(r) for r in result], at=at)
            return Const(result, at=at)
        if name == "join" and len(args) == 1 and isinstance(args[0], Seq) and args[0].exact:
            items = args[0].items
            if all(isinstance(i, Const) and isinstance(i.value, str) for i in items):
                return Const(text.join(i.value for i in items if isinstance(i, Const)), at=at)
        return None


def single_process(func: Value) -> Value | None:
    """What a query of the process group answers in one process."""
    if isinstance(func, Func) and ".distributed" in func.module.name:
        if _WORLD.search(func.name):
            return Const(1)
        if _RANK.search(func.name):
            return Const(0)
    return None


__all__ = ["Elem", "Library", "is_none", "single_process"]
