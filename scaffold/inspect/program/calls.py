"""Calls: functions of the source are followed, constructors make objects, the rest stays symbolic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaffold.inspect.program.algebra import is_none, join, options
from scaffold.inspect.program.library import single_process
from scaffold.inspect.program.outside_data import ANY_KEY, SPREAD
from scaffold.inspect.program.trace import CallRecord, Conditions
from scaffold.inspect.program.values import NONE, Attr, Call, Choice, Map, Obj, Op, Param, Seq, Slot
from scaffold.source.classes import ClassInfo
from scaffold.source.frame import Frame
from scaffold.source.values import ClassRef, Evidence, External, Func, Super, Unknown, Value

if TYPE_CHECKING:
    from scaffold.inspect.program.core import Execution


REGISTERS = "register_modules"
"""The method of diffusers' pipelines that makes attributes of its keyword arguments."""
SCHEDULER_METHODS = ("step", "add_noise", "scale_noise", "scale_model_input")
"""The interface of diffusers' schedulers: what they compute is the scheduler's business, not the pipeline's."""
MAX_FORWARD_NESTING = 1
_PARTIAL = "functools.partial"


_Return = tuple[Value, Conditions]
MAX_WAYS = 8
"""The most return statements that are ordered by their conditions."""


class Calls:
    """Dispatch of calls."""

    def __init__(self, run: Execution) -> None:
        self.run, self.path = run, run.path

    def keywords(self, value: Value) -> dict[str, Value]:
        """Return the keyword arguments in ``**value``."""
        found: dict[str, Value] = {}
        for option in options(value):
            if isinstance(option, Map):
                for key, item in option.items.items():
                    if isinstance(key, str) and key != ANY_KEY:
                        found.setdefault(key, item)
                if not option.exact and SPREAD not in found and self.run.outside.data_of(option) is not None:
                    found[SPREAD] = option
            elif not is_none(option):
                found.setdefault(SPREAD, option)
        return found

    def call(self, func: Value, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value:
        if isinstance(func, Func):
            return single_process(func) or self._call_function(func, args, kwargs, at)
        if isinstance(func, ClassRef):
            return self._construct(func, args, kwargs, at)
        if isinstance(func, Choice):
            real = [o for o in options(func) if not is_none(o)][:3]
            if real:
                return join([self.call(o, args, kwargs, at) for o in real], func.cond, at)
        if isinstance(func, Obj):
            for name in ("__call__", "forward"):
                found = func.cls.find_method(name)
                if found is not None:
                    return self._call_function(Func(found[1], found[0].module, found[0], func), args, kwargs, at)
        if isinstance(func, Call) and isinstance(func.func, External) and func.func.path == _PARTIAL and func.args:
            return self.call(func.args[0], [*func.args[1:], *args], {**func.kwargs, **kwargs}, at)
        if isinstance(func, External):
            known = self.run.library.call_library(func.path, args, kwargs, at)
            if known is not None:
                return known
        return self.record_opaque(func, args, kwargs, at)

    def record_opaque(
        self,
        func: Value,
        args: list[Value],
        kwargs: dict[str, Value],
        at: Evidence | None,
        receiver: Value | None = None,
        method: str = "",
    ) -> Value:
        result = self.run.opaque(func, args, kwargs, at)
        self._record(func, args, kwargs, result, at, receiver=receiver, method=method or result.name)
        return result

    def _record(
        self,
        func: Value,
        args: list[Value],
        kwargs: dict[str, Value],
        result: Value,
        at: Evidence | None,
        bound: dict[str, Value] | None = None,
        receiver: Value | None = None,
        method: str = "",
    ) -> CallRecord:
        stack = self.run.interpreter.stack
        callers = stack[-1].callers if stack else ()
        record = CallRecord(
            func, args, kwargs, result, at, tuple(self.path.loops), tuple(self.path.conditions), callers, bound or {},
            receiver, method,
        )  # fmt: skip
        self.run.trace.calls.append(record)
        return record

    def call_method(
        self, receiver: Value, name: str, args: list[Value], kwargs: dict[str, Value], at: Evidence | None
    ) -> Value:
        if isinstance(receiver, Choice):
            real = [o for o in options(receiver) if not is_none(o)]
            if len(real) == 1:
                return self.call_method(real[0], name, args, kwargs, at)
            if real and len(real) <= 4 and all(isinstance(o, Obj) for o in real):
                return join([self.call_method(o, name, args, kwargs, at) for o in real], receiver.cond, at)
        known = self.run.containers.builtin_method(receiver, name, args, kwargs, at)
        if known is not None:
            return known
        if isinstance(receiver, Obj) and receiver.json_file is not None and self._is_inherited(receiver, name):
            # The callee is a method of an external class, not a value of the configuration.
            func: Value = self.run.symbol_attr(receiver, name, at)
        elif isinstance(receiver, (Obj, ClassRef, Super)) or not isinstance(receiver, (Slot, Attr, Param)):
            func = self.run.get_attr(receiver, name, at)
        else:
            func = self.run.symbol_attr(receiver, name, at)
        if isinstance(receiver, ClassRef) and isinstance(func, Attr) and name.startswith("from_"):
            return self._from_file(receiver.cls, args, kwargs, at)
        if isinstance(receiver, Super) and isinstance(func, External) and name.startswith("from_"):
            if isinstance(receiver.obj, ClassRef):
                return self._from_file(receiver.obj.cls, args, kwargs, at)
        if isinstance(func, Attr):
            if name == "register_to_config" and isinstance(receiver, Obj):  # diffusers' own: over what it was made with
                receiver.kwargs.update(kwargs)
            if name == REGISTERS and isinstance(receiver, Obj):
                for attribute, value in kwargs.items():
                    self.run.set_attr(receiver, attribute, value)
            return self.record_opaque(func, args, kwargs, at, receiver, name)
        return self.call(func, args, kwargs, at)

    @staticmethod
    def _is_inherited(obj: Obj, name: str) -> bool:
        return name not in obj.attrs and not any(
            name in c.methods or name in c.assigns or name in c.nested or name in c.fields for c in obj.cls.mro
        )

    def _from_file(self, cls: ClassInfo, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value:
        """An inherited constructor that reads a configuration: attributes come from the file."""
        obj = Obj(cls, args, kwargs, depth=self.path.depth, at=at)
        location = args[0] if args else None
        obj.json_file = self.run.library.file_name(location) or "config.json"
        obj.ready = True
        self._record(ClassRef(cls), args, kwargs, obj, at, method="from_file")
        return obj

    def _construct(self, func: ClassRef, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value:
        cls = func.cls
        new = cls.find_method("__new__")
        if cls.derives_from("Enum", "IntEnum", "StrEnum") or new is not None:
            return self.record_opaque(func, args, kwargs, at)
        obj = Obj(cls, args, kwargs, depth=self.path.depth, at=at)
        self._record(func, args, kwargs, obj, at, method="__init__")
        return obj

    def _call_function(self, func: Func, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value:
        if not self._should_follow(func):
            return self.record_opaque(func, args, kwargs, at, func.bound, func.name)
        interpreter = self.run.interpreter
        frame = interpreter.enter(func)
        if SPREAD in kwargs:
            kwargs = self.run.outside.arguments(func, kwargs, len(args))
        bound = interpreter.bind(func, args, kwargs, frame)
        record = self._record(func, args, kwargs, NONE, at, bound, func.bound, func.name)
        result: Value
        try:
            result = interpreter.execute(func, frame, at)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            # The source is untrusted: anything unexpected makes this one result unknown.
            result = Unknown(f"not followed: {error}", at=at)
            self.run.failures.append(error)
        record.result = result
        return result

    def result(self, frame: Frame, falls: bool, at: Evidence | None) -> Value:
        if frame.yields:
            return Seq("list", frame.yields, False, self.path.depth, at=at)
        returns = list(frame.returns)
        if falls and returns:
            returns.append((NONE, ()))
        if not returns:
            if not falls and not self.run.constructing and not self.path.depth and len(self.run.interpreter.stack) <= 2:
                self.run.broken += 1
            return NONE if falls else Unknown("always raises", at=at)
        return _merged(returns, at)

    def _should_follow(self, func: Func) -> bool:
        if not self.run.may_inline or (func.name in SCHEDULER_METHODS and not _is_wrapper(func)):
            return False
        if any(f.node is func.node for f in self.run.interpreter.stack):
            return False
        if func.name == "forward" and isinstance(func.bound, Obj) and func.bound.cls.is_module:
            nested = sum(
                1
                for f in self.run.interpreter.stack
                if f.name == "forward" and isinstance(f.bound, Obj) and f.bound.root is None
            )
            return nested < MAX_FORWARD_NESTING
        return True


def _is_wrapper(func: Func) -> bool:
    """A method called ``step`` of a class that makes no schedule: it calls the steps of others, or writes them out.

    So does one that is made of an object of the source, such as a configuration: training cannot make it again as it
    makes a scheduler of numbers.
    """
    if not isinstance(func.bound, Obj) or func.name != "step":
        return False
    cls, given = func.bound.cls, [*func.bound.args, *func.bound.kwargs.values()]
    made_of_another = any(isinstance(option, Obj) for value in given for option in options(value))
    makes_none = cls.find_method("set_timesteps") is None
    return (makes_none or made_of_another) and not any(c.external_bases for c in cls.mro)


def _merged(returns: list[_Return], at: Evidence | None) -> Value:
    """Return the alternatives, with the conditions that choose between them where these are plain."""
    if len(returns) == 2:
        return join([value for value, _ in returns], _all_of(returns[0][1]), at)
    nested = _nested(returns, at) if len(returns) <= MAX_WAYS else None
    return nested if nested is not None else join([value for value, _ in returns], None, at)


def _all_of(path: Conditions) -> Value | None:
    """The one condition under which all of several go the given way."""
    parts = [cond if truth else Op("not", [cond], at=cond.at) for cond, truth in path]
    return Op("and", parts, at=parts[-1].at) if len(parts) > 1 else parts[0] if parts else None


def _nested(returns: list[_Return], at: Evidence | None) -> Value | None:
    """Nested alternatives for ``if a: return x``, ``if b: return y``, ``return z``; None where it is not so plain."""
    (value, path), rest = returns[0], returns[1:]
    if not rest:
        return value
    if len(path) != 1 or path[0][1] is not True or any(p[:1] != ((path[0][0], False),) for _, p in rest[:-1]):
        return None
    last = rest[-1][1]
    if last and last[:1] != ((path[0][0], False),):
        return None
    behind = _nested([(v, p[1:]) for v, p in rest], at)
    return join([value, behind], path[0][0], at) if behind is not None else None
