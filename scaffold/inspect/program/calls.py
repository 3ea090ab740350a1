"""Calls: functions of the source are followed, constructors make objects, the rest stays symbolic."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Evidence
from scaffold.inspect.program.algebra import is_none, join, options
from scaffold.inspect.program.classes import ClassInfo
from scaffold.inspect.program.core import Frame
from scaffold.inspect.program.library import Library, single_process
from scaffold.inspect.program.returns import merged
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.values import (
    NONE,
    Attr,
    Call,
    Choice,
    ClassRef,
    Elem,
    External,
    Func,
    Map,
    Obj,
    Param,
    Seq,
    Slot,
    Super,
    Unknown,
    Value,
)

SCHEDULER_METHODS = ("step", "add_noise", "scale_noise", "scale_model_input")
"""The interface of diffusers' schedulers: what they compute is the scheduler's business, not the pipeline's."""
MAX_FORWARD_NESTING = 1
_PARTIAL = "functools.partial"


class Calls(Library):
    """Dispatch of calls."""

    def _eval_Call(self, node: ast.Call, frame: Frame) -> Value:
        at = self.at(node, frame)
        if isinstance(node.func, ast.Name) and node.func.id == "super" and "super" not in frame.env:
            return self._super(node, frame)
        func = node.func
        receiver: Value | None = None
        if isinstance(func, ast.Attribute):
            receiver = self.evaluate(func.value, frame)
        args, kwargs = self._arguments(node, frame)
        if receiver is not None and isinstance(func, ast.Attribute):
            result = self.call_method(receiver, func.attr, args, kwargs, at)
        else:
            result = self.call(self.evaluate(func, frame), args, kwargs, at, frame=frame)
        return result

    def _super(self, node: ast.Call, frame: Frame) -> Value:
        if frame.owner is not None and frame.bound is not None:
            return Super(frame.bound, frame.owner)
        return External("super", at=self.at(node, frame))

    def _arguments(self, node: ast.Call, frame: Frame) -> tuple[list[Value], dict[str, Value]]:
        args: list[Value] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                value = self.evaluate(argument.value, frame)
                known = self.iterate(value)
                args.extend(known if known is not None else [Elem(value, -1, at=self.at(argument, frame))])
            else:
                args.append(self.evaluate(argument, frame))
        kwargs: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, frame)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
                continue
            for option in options(value):
                if isinstance(option, Map):
                    for key, item in option.items.items():
                        if isinstance(key, str):
                            kwargs.setdefault(key, item)
                elif not is_none(option):
                    kwargs.setdefault("**", option)
        return args, kwargs

    def call(
        self,
        func: Value,
        args: list[Value],
        kwargs: dict[str, Value],
        at: Evidence | None,
        frame: Frame | None = None,
    ) -> Value:
        if isinstance(func, Func):
            return single_process(func) or self._call_function(func, args, kwargs, at)
        if isinstance(func, ClassRef):
            return self._construct(func, args, kwargs, at)
        if isinstance(func, Choice):
            real = [o for o in options(func) if not is_none(o)][:3]
            if real:
                return join([self.call(o, args, kwargs, at, frame) for o in real], func.cond, at)
        if isinstance(func, Obj):
            for name in ("__call__", "forward"):
                found = func.cls.find_method(name)
                if found is not None:
                    return self._call_function(Func(found[1], found[0].module, found[0], func), args, kwargs, at)
        if isinstance(func, Call) and isinstance(func.func, External) and func.func.path == _PARTIAL and func.args:
            return self.call(func.args[0], [*func.args[1:], *args], {**func.kwargs, **kwargs}, at, frame)
        if isinstance(func, External):
            known = self.call_library(func.path, args, kwargs, at, frame)
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
        result = self.opaque(func, args, kwargs, at)
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
        callers = self.stack[-1].callers if self.stack else ()
        record = CallRecord(
            func, args, kwargs, result, at, tuple(self.loop_stack), tuple(self.conditions), callers, bound or {},
            receiver, method,
        )  # fmt: skip
        self.trace.calls.append(record)
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
        known = self.builtin_method(receiver, name, args, kwargs, at)
        if known is not None:
            return known
        if isinstance(receiver, Obj) and receiver.json_file is not None and self._is_inherited(receiver, name):
            # What is called is a method of a class outside the source, no value of the configuration.
            func: Value = self.symbol_attr(receiver, name, at)
        elif isinstance(receiver, Obj | ClassRef | Super) or not isinstance(receiver, Slot | Attr | Param):
            func = self.get_attr(receiver, name, at)
        else:
            func = self.symbol_attr(receiver, name, at)
        if isinstance(receiver, ClassRef) and isinstance(func, Attr) and name.startswith("from_"):
            return self._from_file(receiver.cls, args, kwargs, at)
        if isinstance(receiver, Super) and isinstance(func, External) and name.startswith("from_"):
            if isinstance(receiver.obj, ClassRef):
                return self._from_file(receiver.obj.cls, args, kwargs, at)
        if isinstance(func, Attr):
            return self.record_opaque(func, args, kwargs, at, receiver, name)
        return self.call(func, args, kwargs, at)

    @staticmethod
    def _is_inherited(obj: Obj, name: str) -> bool:
        return name not in obj.attrs and not any(
            name in c.methods or name in c.assigns or name in c.nested or name in c.fields for c in obj.cls.mro
        )

    def _from_file(self, cls: ClassInfo, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value:
        """An inherited constructor that reads a configuration: attributes come from the file."""
        obj = Obj(cls, args, kwargs, depth=self.depth, at=at)
        location = args[0] if args else None
        obj.json_file = self.file_name(location) or "config.json"
        obj.ready = True
        self._record(ClassRef(cls), args, kwargs, obj, at, method="from_file")
        return obj

    def _construct(self, func: ClassRef, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value:
        cls = func.cls
        new = cls.find_method("__new__")
        if cls.derives_from("Enum", "IntEnum", "StrEnum") or new is not None:
            return self.record_opaque(func, args, kwargs, at)
        obj = Obj(cls, args, kwargs, depth=self.depth, at=at)
        self._record(func, args, kwargs, obj, at, method="__init__")
        return obj

    def _call_function(self, func: Func, args: list[Value], kwargs: dict[str, Value], at: Evidence | None) -> Value:
        if not self._should_follow(func):
            return self.record_opaque(func, args, kwargs, at, func.bound, func.name)
        node = func.node
        frame = Frame(func.module, node, func.owner, func.bound, closure=func.closure)
        bound = self._bind_arguments(func, args, kwargs, frame)
        record = self._record(func, args, kwargs, NONE, at, bound, func.bound, func.name)
        self.trace.followed[id(node)] = func
        frame.outside = len(self.conditions)
        frame.callers = (*(self.stack[-1].callers if self.stack else ()), self.function_name(frame))
        self.stack.append(frame)
        marks = (len(self.conditions), len(self.loop_stack), len(self.rows), len(self.branch_marks), self.depth)
        result: Value
        try:
            if isinstance(node, ast.Lambda):
                result = self.evaluate(node.body, frame)
            else:
                falls = self.run_block(node.body, frame)
                result = self._result(frame, falls, at)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            # The source is anybody's: what was not foreseen makes this one result unknown.
            result = Unknown(f"not followed: {error}", at=at)
            self.failures.append(error)
        finally:
            self.stack.pop()
            del self.conditions[marks[0] :], self.loop_stack[marks[1] :]
            del self.rows[marks[2] :], self.branch_marks[marks[3] :]
            self.depth = marks[4]
        record.result = result
        return result

    def _result(self, frame: Frame, falls: bool, at: Evidence | None) -> Value:
        if frame.yields:
            return Seq("list", frame.yields, False, self.depth, at=at)
        returns = list(frame.returns)
        if falls and returns:
            returns.append((NONE, ()))
        if not returns:
            if not falls and not self.constructing and not self.depth and len(self.stack) <= 2:
                self.broken += 1
            return NONE if falls else Unknown("always raises", at=at)
        return merged(returns, at)

    def _should_follow(self, func: Func) -> bool:
        if not self.may_inline or (func.name in SCHEDULER_METHODS and not _is_wrapper(func)):
            return False
        if any(f.node is func.node for f in self.stack):
            return False
        if func.name == "forward" and isinstance(func.bound, Obj) and func.bound.cls.is_module:
            nested = sum(
                1
                for f in self.stack
                if self.function_name(f) == "forward" and isinstance(f.bound, Obj) and f.bound.root is None
            )
            return nested < MAX_FORWARD_NESTING
        return True

    def _bind_arguments(
        self, func: Func, args: list[Value], kwargs: dict[str, Value], frame: Frame
    ) -> dict[str, Value]:
        """Bind arguments to parameters; returns them by name, without the receiver."""
        spec = func.node.args
        names = [a.arg for a in [*spec.posonlyargs, *spec.args]]
        given = list(args)
        if func.bound is not None and names and not _is_static(func.node):
            frame.env[names[0]] = func.bound
            names = names[1:]
        bound: dict[str, Value] = {}
        for name in names:
            if given:
                bound[name] = given.pop(0)
        if spec.vararg is not None:
            bound[spec.vararg.arg] = Seq("tuple", given, depth=self.depth)
        known = {*names, *(a.arg for a in spec.kwonlyargs)}
        extra = {k: v for k, v in kwargs.items() if k not in known}
        bound.update({k: v for k, v in kwargs.items() if k in known})
        if spec.kwarg is not None:
            bound[spec.kwarg.arg] = Map(extra, "**" not in extra, self.depth)
        positional = [*spec.posonlyargs, *spec.args]
        defaults = list(zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True))
        defaults += [(a, d) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None]
        for argument, expression in defaults:
            if argument.arg not in bound and argument.arg not in frame.env:
                bound[argument.arg] = self.evaluate(expression, Frame(func.module, closure=func.closure))
        for name in known:
            if name not in bound:
                bound[name] = Param("argument", name)
        frame.env.update(bound)
        return bound


def _is_wrapper(func: Func) -> bool:
    """A method called ``step`` of a class that makes no schedule: it calls the steps of others, or writes them out."""
    cls = func.bound.cls if isinstance(func.bound, Obj) else None
    return (
        cls is not None
        and func.name == "step"
        and cls.find_method("set_timesteps") is None
        and not any(c.external_bases for c in cls.mro)
    )


def _is_static(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list
    )
