"""Executes loading code on names: which parameter of the engine each weight reaches."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from scaffold.bounded import method, regular
from scaffold.inspect.program.values import ClassRef, Obj
from scaffold.remap.engine.execution import MAX_FRAMES, Frame, Handler, Stream
from scaffold.remap.engine.expressions import Keys
from scaffold.remap.engine.library import Library
from scaffold.remap.engine.naming import SlotNames, SlotTable
from scaffold.remap.engine.scope import Scope
from scaffold.remap.engine.statements import Leave, Statements
from scaffold.remap.engine.tokens import (
    UNKNOWN,
    Bound,
    External,
    Function,
    Loader,
    Mapper,
    Module,
    Slot,
    SlotLoader,
    SlotShape,
    Symbol,
    Unknown,
    Weight,
)
from scaffold.remap.engine.undecided import UndecidedError

_TEXT = frozenset(name for name in dir(str) if not name.startswith("_")) - {"format", "format_map", "ljust", "rjust",
                                                                           "center", "zfill", "expandtabs"}  # fmt: skip
_TABLES = frozenset(
    {"get", "items", "keys", "values", "pop", "setdefault", "update", "append", "extend", "add", "discard", "remove"}
    | {"insert", "index", "count", "copy", "clear", "union", "intersection", "difference", "issubset", "sort"}
)


class Super:
    """``super()`` in a method."""

    def __init__(self, module: Module, owner: Any) -> None:
        self.module, self.owner = module, owner


class Interpreter(Library, Statements):
    """Calls, and names of the global scope."""

    def _eval_Call(self, node: ast.Call, frame: Frame) -> Any:
        func = node.func
        if isinstance(func, ast.Name) and func.id == "super" and isinstance(frame.bound, Module):
            return Super(frame.bound, frame.owner)
        target = self.evaluate(func, frame)
        args = self._items(node.args, frame)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, frame)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, dict):
                kwargs.update({key: item for key, item in value.items() if isinstance(key, str)})
        return self.call(target, args, kwargs)

    def get_attr(self, base: Any, name: str) -> Any:
        if isinstance(base, Super):
            after = None if isinstance(base.owner, Handler) else base.owner
            if after is None:
                # The package's class: its base is the pipeline.
                handler, self.handler = self.handler, None
                try:
                    found = self.method(base.module, name)
                finally:
                    self.handler = handler
            else:
                found = self.method(base.module, name, after)
            return found if found is not None else Bound(base.module, name)
        return super().get_attr(base, name)

    def call(self, func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(func, Function):
            return self._call_function(func, args, kwargs)
        if isinstance(func, SlotLoader):
            self.call_slot_loader(func, args, kwargs)
            return None
        if isinstance(func, External):
            return self.call_external(func.path, args, kwargs)
        if isinstance(func, Bound):
            return self._call_method(func.receiver, func.name, args, kwargs)
        if isinstance(func, Symbol) and isinstance(func.value, ClassRef):
            return Symbol(Obj(func.value.cls))
        return self.made_of([*args, *kwargs.values()], "call")

    def _call_method(self, base: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(base, Module):
            return self.call_module(base, name, args, kwargs)
        if isinstance(base, Weight):
            return self.call_weight(base, name, args)
        if isinstance(base, Slot):
            if name == "copy_" and args:
                if not isinstance(args[0], Weight):
                    raise self.undecided("a parameter is filled from something that is not known")
                self.land(base, args[0], [])
            return SlotShape(base) if name == "size" else UNKNOWN
        if isinstance(base, Loader) and name == "load_weights":
            return self.load_through(base, args, kwargs)
        if isinstance(base, Mapper):
            return self._map_names(base, name, args)
        if isinstance(base, SlotTable | SlotNames) and name in ("keys", "copy", "items", "values"):
            return self._slot_method(base, name)
        if isinstance(base, str):
            return _text_method(base, name, args)
        if isinstance(base, dict | list | tuple | set | frozenset):
            return self._table_method(base, name, args, kwargs)
        if isinstance(base, int | float | Unknown | type(None) | Stream):
            return self.made_of(args, name)
        return _match_method(base, name, args)

    def _slot_method(self, base: Any, name: str) -> Any:
        if isinstance(base, SlotNames):
            return SlotNames(base, base.opened)
        if name == "keys":
            return SlotNames(base, base.opened)
        return SlotTable(base.items(), base.opened) if name == "copy" else list(getattr(base, name)())

    def _map_names(self, mapper: Mapper, name: str, args: list[Any]) -> Any:
        if name not in ("apply", "apply_list") or not args:
            return UNKNOWN
        made = []
        for item in self.iterate(args[0]):
            text = item[0] if isinstance(item, tuple) else item
            new = mapper.rename(text) if isinstance(text, str) else None
            if new is not None:
                made.append((new, item[1]) if isinstance(item, tuple) else new)
        return made

    def _table_method(self, base: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name not in _TABLES or not hasattr(base, name):
            return UNKNOWN
        if any(isinstance(a, Unknown) for a in args[:1]) and name in ("get", "pop", "setdefault", "add", "index"):
            return UNKNOWN
        if name in ("update", "extend", "union", "intersection", "difference"):
            args = [a if isinstance(a, dict) else self.iterate(a) for a in args]
        if name == "sort":
            return None
        try:
            result = method(base, name, *args)
        except (TypeError, ValueError, KeyError, IndexError):
            return UNKNOWN
        if name == "keys":
            return Keys(result)
        return list(result) if name in ("items", "values") else result

    def _call_function(self, func: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        node = func.node
        if self.frames >= MAX_FRAMES:
            raise self.undecided("calls nested too deeply")
        frame = Frame(func.scope, {}, func.closure, func.bound, func.owner)
        given = [func.bound, *args] if func.bound is not None and not isinstance(node, ast.Lambda) else list(args)
        self._bind(node.args, given, kwargs, frame)
        if isinstance(node, ast.Lambda):
            return self.evaluate(node.body, frame)
        at, self.frames = self.at, self.frames + 1
        try:
            left = self.run(node.body, frame)
        except UndecidedError as error:
            if not self.lenient or self.frames == 1:
                raise
            self.left_open.append(str(error))
            return UNKNOWN
        finally:
            self.frames -= 1
        self.at = at
        if _is_generator(node):
            return Stream(frame.yields)
        return left.value if isinstance(left, Leave) and left.how == "return" else None

    def _bind(self, spec: ast.arguments, given: list[Any], kwargs: dict[str, Any], frame: Frame) -> None:
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        outer = Frame(frame.scope, closure=frame.closure)
        for name, default in zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True):
            frame.env[name] = self.evaluate(default, outer)
        for argument, keyword_default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            frame.env[argument.arg] = UNKNOWN if keyword_default is None else self.evaluate(keyword_default, outer)
        for name in names:
            frame.env.setdefault(name, UNKNOWN)
        frame.env.update(zip(names, given, strict=False))
        known = {*names, *(a.arg for a in spec.kwonlyargs)}
        frame.env.update({key: value for key, value in kwargs.items() if key in known})
        if spec.vararg is not None:
            frame.env[spec.vararg.arg] = tuple(given[len(names) :])
        if spec.kwarg is not None:
            frame.env[spec.kwarg.arg] = {key: value for key, value in kwargs.items() if key not in known}

    def global_name(self, name: str, frame: Frame) -> Any:
        found = self._in_scope(frame.scope, name, 0)
        if found is not None:
            return found
        return External(f"builtins.{name}") if hasattr(builtins, name) else UNKNOWN

    def _in_scope(self, scope: Scope, name: str, depth: int) -> Any:
        node = scope.definitions.get(name)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return Function(node, scope)
        if isinstance(node, ast.ClassDef):
            info = scope.info
            value = self.program.lookup_global(info, name) if info is not None else None
            return Symbol(value) if value is not None else UNKNOWN
        if node is not None:
            return self.evaluate(node, Frame(scope)) if depth < 8 else UNKNOWN
        bound = scope.imports.get(name)
        if bound is not None:
            return self._from_import(bound, depth)
        for star in scope.stars:
            target = self.scopes.find(star)
            found = self._in_scope(target, name, depth + 1) if target is not None and depth < 8 else None
            if found is not None:
                return found
        return None

    def _from_import(self, bound: Any, depth: int) -> Any:
        if bound.name is not None and depth < 8:
            target = self.scopes.find(bound.module)
            found = self._in_scope(target, bound.name, depth + 1) if target is not None else None
            if found is not None:
                return found
        return External(bound.module if bound.name is None else f"{bound.module}.{bound.name}")

    def imported(self, found: Any) -> Any:
        return self._from_import(found, 0)


def _text_method(base: str, name: str, args: list[Any]) -> Any:
    if name not in _TEXT or any(isinstance(a, Unknown) for a in args):
        return UNKNOWN
    args = [tuple(a) if isinstance(a, list) and name in ("startswith", "endswith") else a for a in args]
    if name == "join":
        args = [a.items if isinstance(a, Stream) else a for a in args]
    try:
        return method(base, name, *args)
    except (TypeError, ValueError):
        return UNKNOWN


def _match_method(base: Any, name: str, args: list[Any]) -> Any:
    """Methods of a compiled pattern or a match."""
    import re

    if isinstance(base, re.Match | re.Pattern) and name in ("group", "groups", "start", "end", "match", "search",
                                                            "fullmatch", "sub", "groupdict"):  # fmt: skip
        if all(isinstance(a, str | int) for a in args):
            try:
                held = base.pattern if isinstance(base, re.Pattern) else ""
                return regular(getattr(base, name), held, *args)
            except (re.error, IndexError, TypeError, ValueError):
                return UNKNOWN
    return UNKNOWN


def _is_generator(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    pending: list[ast.AST] = list(node.body)
    while pending:
        found = pending.pop()
        if isinstance(found, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.GeneratorExp):
            pending.extend(ast.iter_child_nodes(found))
    return False
