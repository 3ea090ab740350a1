"""Attributes, items and mutation of symbolic objects."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.inspect.program.algebra import is_none, join, only_member, options, walk
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.outside_data import SPREAD
from scaffold.inspect.program.trace import Write
from scaffold.inspect.program.values import Attr, Call, Choice, Elem, Item, Map, Obj, Param, Seq, Slot
from scaffold.source.classes import ClassInfo, Method
from scaffold.source.modules import ModuleInfo
from scaffold.source.values import ClassRef, Evidence, External, Func, ModuleRef, Super, Unknown, Value

if TYPE_CHECKING:
    from scaffold.inspect.program.core import Execution


PIPELINE_ROOT = "pipeline"


class Attributes:
    """Reads and writes of attributes and items."""

    def __init__(self, run: Execution) -> None:
        self.run, self.path = run, run.path
        self._defaults: dict[tuple[str, int], Value] = {}

    def get_attr(self, base: Value, name: str, at: Evidence | None = None) -> Value:
        if isinstance(base, Obj):
            return self._object_attr(base, name, at)
        if isinstance(base, ModuleRef):
            named: Value = self.run.scopes.member(base.module, name)
            return named
        if isinstance(base, External):
            return External(f"{base.path}.{name}", at=at)
        if isinstance(base, ClassRef):
            found = self._class_attr(base.cls, name, base, at)
            return found if found is not None else self.run.symbol_attr(base, name, at)
        if isinstance(base, Super):
            return self._super_attr(base, name, at)
        if isinstance(base, Choice):
            real = [o for o in options(base) if not is_none(o) and not isinstance(o, Slot)] or options(base)
            if len(real) == 1 and real[0] is not base:
                return self.get_attr(real[0], name, at)
            if len(real) <= 4 and all(isinstance(o, Obj) for o in real):
                return join([self.get_attr(o, name, at) for o in real], None, at)
            return self.run.symbol_attr(base, name, at)
        if isinstance(base, Item) and (member := only_member(base)) is not None:
            return self._object_attr(member, name, at)
        if isinstance(base, Elem) and isinstance(base.source, Seq) and len(base.source.items) == 1:
            # Every entry of the list was made by one expression.
            made = base.source.items[0]
            return self.get_attr(made, name, at) if isinstance(made, Obj) else self.run.symbol_attr(base, name, at)
        if isinstance(base, Param) and base.root in ("od_config", "prompt"):
            return Param(base.root, f"{base.key}.{name}" if base.key else name, at=at)
        if isinstance(base, Call):
            # A constructor outside the source keeps what it was given under the names it was given.
            if name in base.kwargs and isinstance(base.func, External) and base.name[:1].isupper():
                return base.kwargs[name]
        return self.run.symbol_attr(base, name, at)

    def _object_attr(self, obj: Obj, name: str, at: Evidence | None) -> Value:
        if obj.root in ("sampling_params", "od_config"):
            return self._root_attr(obj, name, at)
        self.ensure_ready(obj)
        if name in obj.attrs:
            return obj.attrs[name]
        found = self._class_attr(obj.cls, name, obj, at)
        if obj.filled is not None and (found is None or obj.cls.find_assign(name) is not None):
            return self.run.outside.entry(obj.filled, name, found, at)
        if found is not None:
            return found
        if obj.json_file is not None:
            return self._json_attr(obj, name, at)
        if name == "__class__":
            return ClassRef(obj.cls)
        if name == "__dict__":
            return Map(dict(obj.attrs), owner=obj)
        delegate = obj.cls.delegate
        if delegate is not None and delegate in obj.attrs and name != delegate and not name.startswith("__"):
            return self.get_attr(obj.attrs[delegate], name, at)
        return self.run.symbol_attr(obj, name, at)

    def _json_attr(self, obj: Obj, name: str, at: Evidence | None) -> Value:
        """An attribute of a configuration class that was read from a file."""
        default: Value | None = None
        place = at
        init = obj.cls.find_method("__init__")
        if init is not None:
            owner, node = init
            arguments = node.args
            names = [*arguments.posonlyargs, *arguments.args]
            pairs = list(zip(names[len(names) - len(arguments.defaults) :], arguments.defaults, strict=True))
            pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
            for argument, expression in pairs:
                if argument.arg == name:
                    default = self._global(expression, owner.module)
                    place = Evidence(owner.module.file, argument.lineno)
        for owner, field_name, expression_or_none in obj.cls.all_fields():
            if field_name == name and expression_or_none is not None:
                default = self.field_default(expression_or_none, owner)
        value = self.run.conf(obj.json_file or "", (name,), default, place)
        obj.attrs[name] = value
        return value

    def _root_attr(self, obj: Obj, name: str, at: Evidence | None) -> Value:
        """A field of the request's sampling parameters or of the engine's options."""
        root = obj.root or ""
        if root == "sampling_params" and name != "extra_args":
            self.run.trace.reads.setdefault((root, name), at)
        if name in obj.attrs:
            return obj.attrs[name]
        found = obj.cls.find_method(name)
        if found is not None:
            owner, node = found
            func = Func(node, owner.module, owner, obj, at=at)
            return self.run.call(func, [], {}, at) if _is_property(node) else func
        default: Value | None = None
        assigned = obj.cls.find_assign(name)
        if assigned is not None:
            default = self.field_default(assigned[1], assigned[0])
        if root == "sampling_params" and name == "extra_args":
            default = Map({})
        if isinstance(default, Obj):
            obj.attrs[name] = default
            return default
        if self.run.with_everything and default is not None and is_none(default):
            default = None
        value = Param(root, name, default, at=at)
        obj.attrs[name] = value
        return value

    def field_default(self, node: ast.expr, owner: ClassInfo) -> Value:
        """The default of a class attribute or dataclass field."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("field", "Field"):
            for keyword in node.keywords:
                if keyword.arg == "default":
                    return self._global(keyword.value, owner.module)
                if keyword.arg == "default_factory":
                    factory = self._global(keyword.value, owner.module)
                    return self.run.call(factory, [], {}, Evidence(owner.module.file, node.lineno))
            return Unknown("field without a default")
        key = (f"{owner.module.name}:{owner.name}", id(node))
        if key not in self._defaults:
            self._defaults[key] = self._evaluate_in_class(node, owner)
        return self._defaults[key]

    def _global(self, node: ast.expr, module: ModuleInfo) -> Value:
        value: Value = self.run.interpreter.evaluate_global(node, module)
        return value

    def _evaluate_in_class(self, node: ast.expr, owner: ClassInfo) -> Value:
        if isinstance(node, ast.Name) and node.id in owner.assigns and owner.assigns[node.id] is not node:
            return self.field_default(owner.assigns[node.id], owner)
        return self._global(node, owner.module)

    def _class_attr(self, cls: ClassInfo, name: str, receiver: Value, at: Evidence | None) -> Value | None:
        for owner in cls.mro:
            if name in owner.methods:
                return self._bind(owner, owner.methods[name], receiver, at)
            if name in owner.assigns and any(_sets(above, name) for above in cls.mro[1:]):
                return self.run.symbol_attr(receiver, name, at)
            if name in owner.assigns:
                return self._borrowed(owner.assigns[name], owner, receiver, at)
            if name in owner.nested:
                return ClassRef(self.run.scopes.classes.get(owner.nested[name], owner.module), at=at)
        return None

    def _borrowed(self, node: ast.expr, owner: ClassInfo, receiver: Value, at: Evidence | None) -> Value:
        """A class attribute; a function that it holds is a method of whoever is asked for it."""
        mark = _decorator_name(node) if isinstance(node, ast.Call) and len(node.args) == 1 else ""
        plain = mark in ("staticmethod", "classmethod")
        value = self.field_default(node.args[0] if plain and isinstance(node, ast.Call) else node, owner)
        if not isinstance(value, Func) or value.bound is not None or mark == "staticmethod":
            return value
        if mark == "classmethod":
            return replace(value, bound=ClassRef(receiver.cls) if isinstance(receiver, Obj) else receiver, at=at)
        if not isinstance(receiver, Obj):
            return value
        if not isinstance(value.node, ast.Lambda) and _is_property(value.node):
            return self.run.call(replace(value, bound=receiver), [], {}, at)
        return replace(value, bound=receiver, at=at)

    def _bind(self, owner: ClassInfo, node: Method, receiver: Value, at: Evidence | None) -> Value:
        marks = {_decorator_name(d) for d in node.decorator_list}
        if "staticmethod" in marks:
            return Func(node, owner.module, owner, at=at)
        if "classmethod" in marks:
            cls = receiver if isinstance(receiver, ClassRef) else None
            bound = cls or (ClassRef(receiver.cls) if isinstance(receiver, Obj) else receiver)
            return Func(node, owner.module, owner, bound, at=at)
        if isinstance(receiver, Obj):
            func = Func(node, owner.module, owner, receiver, at=at)
            return self.run.call(func, [], {}, at) if _is_property(node) else func
        return Func(node, owner.module, owner, at=at)

    def _super_attr(self, base: Super, name: str, at: Evidence | None) -> Value:
        if isinstance(base.obj, (Obj, ClassRef)):
            found = base.obj.cls.find_method(name, after=base.owner)
            if found is not None:
                return self._bind(found[0], found[1], base.obj, at)
            for owner in base.obj.cls.mro:
                if owner is not base.owner and name in owner.assigns:
                    return self.field_default(owner.assigns[name], owner)
        return External(f"super.{name}", at=at)

    def ensure_ready(self, obj: Obj) -> None:
        """Run the object's ``__init__`` if that has not been done."""
        if obj.ready:
            return
        obj.ready = True
        if obj.json_file is not None:
            return
        state = (self.path.depth, self.path.conditions, self.path.loops)
        self.path.depth, self.path.conditions, self.path.loops = obj.depth, [], []
        try:
            init = obj.cls.find_method("__init__")
            if init is not None:
                self.run.call(Func(init[1], init[0].module, init[0], obj), obj.args, obj.kwargs, obj.at)
            elif obj.cls.is_dataclass or any(c.is_dataclass for c in obj.cls.mro):
                self._init_dataclass(obj)
            else:
                for name, value in obj.kwargs.items():
                    obj.attrs.setdefault(name, value)
                obj.filled = self.run.outside.data_of(obj.kwargs.get(SPREAD))
        finally:
            self.path.depth, self.path.conditions, self.path.loops = state

    def _init_dataclass(self, obj: Obj) -> None:
        remaining = list(obj.args)
        data = self.run.outside.data_of(obj.kwargs.get(SPREAD))
        for owner, name, default in obj.cls.all_fields():
            if remaining:
                obj.attrs[name] = remaining.pop(0)
            elif name in obj.kwargs:
                obj.attrs[name] = obj.kwargs[name]
            elif data is not None:
                known = self.field_default(default, owner) if default is not None else None
                obj.attrs[name] = self.run.outside.entry(data, name, known, obj.at)
            elif default is not None:
                obj.attrs[name] = self.field_default(default, owner)
        post = obj.cls.find_method("__post_init__")
        if post is not None:
            self.run.call(Func(post[1], post[0].module, post[0], obj), [], {}, obj.at)

    def set_attr(self, base: Value, name: str, value: Value) -> None:
        for target in options(base)[:4]:
            if not isinstance(target, Obj):
                if isinstance(target, (Attr, Call)):
                    self.run.trace.writes.append(Write(target, name, value, value.at))
                continue
            if target.root in ("sampling_params", "od_config"):
                previous = target.attrs.get(name)
                if previous is None and self.path.depth > target.depth:
                    known = (target.root, name) in self.run.trace.reads
                    previous = self._root_attr(target, name, value.at)
                    if not known:
                        self.run.trace.reads.pop((target.root, name), None)
                asks = target.root == "sampling_params" and not (isinstance(value, Param) and value.key == name)
                if asks and self._overwrites(target, name, value):
                    self.run.overwritten[id(value)] = value
                elif asks:
                    value = Param(target.root, name, value, at=value.at)
                if self.path.depth > target.depth and previous is not None:
                    cond, truth = self.path.conditions[-1] if self.path.conditions else (None, True)
                    value = join([value, previous] if truth else [previous, value], cond)
                target.attrs[name] = value
                continue
            self.ensure_ready(target)
            old = target.attrs.get(name)
            weak = self.path.depth > target.depth or isinstance(base, Choice)
            if weak and old is not None:
                value = join([value, old]) if isinstance(base, Choice) else self._in_branch(target, value, old)
            target.attrs[name] = value

    def _in_branch(self, target: Obj, value: Value, old: Value) -> Value:
        """What an attribute holds that a constructor sets in one branch; a second branch completes the first."""
        depth, cond, truth = self.path.branches[-1] if self.path.branches else (0, None, True)
        if not self.run.constructing or cond is None or depth != self.path.depth or depth != target.depth + 1:
            return join([value, old])
        other = old
        if isinstance(old, Choice) and old.cond is cond and len(old.options) == 2:
            other = old.options[1 if truth else 0]
        return join([value, other] if truth else [other, value], cond)

    def _overwrites(self, target: Obj, name: str, value: Value) -> bool:
        """Whether a field of the request gets what has nothing to do with any request, set or not."""
        if self.path.depth > target.depth or name in self.run.filling or default_of(value) is None:
            return False
        return not any(
            isinstance(n, Param) and n.root in ("sampling_params", "extra_args", "prompt") for n in walk(value)
        )


def _decorator_name(node: ast.expr) -> str:
    target = node.func if isinstance(node, ast.Call) else node
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


def _is_property(node: Method) -> bool:
    return any(_decorator_name(d) in ("property", "cached_property") for d in node.decorator_list)


def _sets(base: ClassInfo, name: str) -> bool:
    """Whether a base sets an attribute of the classes that derive from it."""
    method = base.methods.get("__init_subclass__")
    return method is not None and any(
        isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(method)
    )
