"""What is known of builtins and of methods of plain values."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaffold.inspect.program.algebra import join
from scaffold.inspect.program.conditions import none_ness
from scaffold.inspect.program.items import MODEL_INDEX
from scaffold.inspect.program.values import NONE, Attr, Call, Choice, Conf, Const, Map, Obj, Op, Param, Seq
from scaffold.source.values import ClassRef, Evidence, External, Func, Unknown, Value

if TYPE_CHECKING:
    from scaffold.inspect.program.core import Execution
if TYPE_CHECKING:
    from scaffold.inspect.program.core import Execution


# ``retrieve_timesteps`` of diffusers: it asks a scheduler for a schedule and hands the times back.

_NAMES = ("scheduler", "num_inference_steps", "device", "timesteps", "sigmas")
_OWN_SCHEDULES = ("timesteps", "sigmas")


def is_retrieval(path: str) -> bool:
    """Whether a dotted path names the function, which each family of pipelines of diffusers has a copy of."""
    return path.startswith("diffusers.") and path.endswith(".retrieve_timesteps")


def retrieve_timesteps(
    run: Execution, args: list[Value], kwargs: dict[str, Value], at: Evidence | None
) -> Value | None:
    """Call ``set_timesteps`` with the first of times, levels and number of steps that is given.

    Returns:
        The scheduler's times and the number of steps; None where the scheduler is not given.
    """
    given = dict(zip(_NAMES, args, strict=False)) | kwargs
    scheduler = given.get("scheduler")
    if scheduler is None:
        return None
    rest = {name: value for name, value in given.items() if name not in _NAMES or name == "device"}
    conditions = len(run.path.conditions)
    for name in _OWN_SCHEDULES:
        schedule = given.get(name, NONE)
        absent = none_ness(schedule)
        if absent is True:
            continue
        cond = Op("isnot", [schedule, NONE], at=at)
        run.path.conditions.append((cond, True))
        run.call_method(scheduler, "set_timesteps", [], {name: schedule, **rest}, at)
        run.path.conditions[-1] = (cond, False)
        if absent is False:
            break
    else:
        run.call_method(scheduler, "set_timesteps", [given.get("num_inference_steps", NONE)], rest, at)
    del run.path.conditions[conditions:]
    times = run.get_attr(scheduler, "timesteps", at)
    return Seq("tuple", [times, given.get("num_inference_steps", NONE)], depth=run.path.depth, at=at)


_CASTS = frozenset(("int", "float", "str", "bool"))
_COPIES = frozenset(("copy.deepcopy", "copy.copy"))
_WORLD = re.compile(r"get_\w*(world_size|_size)$")
_RANK = re.compile(r"get_\w*rank$")


class Library:
    """Builtins, containers, strings, casts, configuration files."""

    def __init__(self, run: Execution) -> None:
        self.run, self.path = run, run.path

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
        if isinstance(value, Call) and "filename" in value.kwargs:
            return self.file_name(value.kwargs["filename"])
        if isinstance(value, Call) and value.args:
            return self.file_name(value.args[-1])
        return None

    def call_library(self, path: str, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        """The result of a call outside the source, where it is known."""
        if path in _COPIES and args:
            return self._copy(args[0], path == "copy.deepcopy", {})
        if path == "typing.cast" and len(args) == 2:
            return args[1]
        if path == "dataclasses.replace" and args and isinstance(args[0], Obj) and "**" not in kwargs:
            return self._replaced(args[0], kwargs)
        if path == "json.load" and args:
            handle = args[0]
            name = self.file_name(handle.args[0]) if isinstance(handle, Call) and handle.args else None
            return Conf(name, (), at=at) if name else None
        if path == "os.path.exists" and args and self.run.model_name is not None:
            # Where one class has several names, the index tells them apart: it is there.
            return Const(True, at=at) if self.file_name(args[0]) == MODEL_INDEX else None
        if is_retrieval(path):
            return retrieve_timesteps(self.run, args, kwargs, at)
        if not path.startswith("builtins."):
            return None
        name = path.removeprefix("builtins.")
        handler = getattr(self, f"_builtin_{name}", None)
        if handler is not None:
            result: Value | None = handler(args, kwargs, at)
            return result
        if name in ("list", "tuple", "set"):
            return self._to_sequence(name, args, at)
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
            result = done[id(value)] = Map({}, value.exact, self.path.depth, at=value.at)
            for key, item in value.items.items():
                result.items[key] = self._copy(item, deep, done) if deep else item
            return result
        if isinstance(value, Seq):
            copied = done[id(value)] = Seq(value.kind, [], value.exact, self.path.depth, at=value.at)
            copied.items.extend(self._copy(i, deep, done) if deep else i for i in value.items)
            return copied
        return value

    def _replaced(self, obj: Obj, changes: dict[str, Value]) -> Obj:
        """A copy of a dataclass's object with other values; what it was given for an option is its new default."""
        self.run.attributes.ensure_ready(obj)
        rooted = obj.root is not None
        given = {k: Param(obj.root or "", k, v, at=v.at) if rooted else v for k, v in changes.items()}
        return replace(obj, attrs={**obj.attrs, **given}, ready=True, depth=self.path.depth)

    def _builtin_getattr(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        if len(args) < 2 or not isinstance(args[1], Const) or not isinstance(args[1].value, str):
            return None
        base, name = args[0], args[1].value
        value = self.run.get_attr(base, name, at)
        if len(args) == 2:
            return value
        default = args[2]
        if isinstance(base, Obj) and isinstance(value, Attr):
            if any(c.external_bases for c in base.cls.mro):
                return join([value, default], None, at)
            return default
        if isinstance(value, Param) and value.default is None and isinstance(base, Obj):
            return Param(value.root, value.key, default, at=at)
        if isinstance(value, (Attr, Unknown)):
            return default if isinstance(value, Unknown) else join([value, default], None, at)
        return value

    def _builtin_hasattr(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        if len(args) == 2 and isinstance(args[0], Obj) and isinstance(args[1], Const):
            value = self.run.get_attr(args[0], str(args[1].value), at)
            if not isinstance(value, Attr):
                return Const(True, at=at)
            if not any(c.external_bases for c in args[0].cls.mro):
                return Const(False, at=at)
        return None

    def _builtin_setattr(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        if len(args) == 3 and isinstance(args[1], Const):
            self.run.set_attr(args[0], str(args[1].value), args[2])
            return NONE
        data = self.run.outside.data_of(args[2]) or self.run.outside.data_of(args[1]) if len(args) == 3 else None
        if data is not None and isinstance(args[0], Obj) and args[0].root is None:
            self.run.attributes.ensure_ready(args[0])
            self.run.outside.fill(args[0], data)
            return NONE
        return None

    def _builtin_vars(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        return self.run.get_attr(args[0], "__dict__", at) if len(args) == 1 and isinstance(args[0], Obj) else None

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
        if len(args) == 1 and isinstance(args[0], (Seq, Map)) and args[0].exact:
            return Const(len(args[0].items), at=at)
        if len(args) == 1 and isinstance(args[0], Const) and isinstance(args[0].value, (str, tuple)):
            return Const(len(args[0].value), at=at)
        return None

    def _builtin_dict(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        result = Map({}, depth=self.path.depth, at=at)
        if args:
            if isinstance(args[0], Map):
                result.items.update(args[0].items)
                result.exact = args[0].exact
            elif isinstance(args[0], (Param, Conf, Choice)):
                return args[0] if not kwargs else Map({**kwargs, "**": args[0]}, False, self.path.depth, at=at)
            else:
                result.exact = False
        for key, value in kwargs.items():
            if key == "**":
                result.exact = False
            result.items[key] = value
        return result

    def _to_sequence(self, kind: str, args: list[Value], at: Evidence | None) -> Value:
        if not args:
            return Seq(kind, [], depth=self.path.depth, at=at)
        known = self.run.iterate(args[0])
        if known is not None:
            return Seq(kind, known, depth=self.path.depth, at=at)
        return args[0]

    def _builtin_zip(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        columns = [self.run.iterate(a) for a in args]
        if args and all(c is not None for c in columns):
            rows = zip(*[c for c in columns if c is not None], strict=False)
            return Seq("list", [Seq("tuple", list(row)) for row in rows], at=at)
        return None

    def _builtin_enumerate(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        known = self.run.iterate(args[0]) if args else None
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

    def _builtin_next(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        if args and isinstance(args[0], Seq) and args[0].exact and args[0].kind == "list":
            return args[0].items[0] if args[0].items else (args[1] if len(args) == 2 else None)
        return None

    def _builtin_reversed(self, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value | None:
        known = self.run.iterate(args[0]) if args else None
        return Seq("list", known[::-1], at=at) if known is not None else None


def single_process(func: Value) -> Value | None:
    """What a query of the process group answers in one process."""
    if isinstance(func, Func) and ".distributed" in func.module.name:
        if _WORLD.search(func.name):
            return Const(1)
        if _RANK.search(func.name):
            return Const(0)
    return None
