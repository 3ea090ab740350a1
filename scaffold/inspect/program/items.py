"""Items of symbolic containers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from scaffold.inspect.program.algebra import is_none, join, options
from scaffold.inspect.program.conditions import MEDIA_KEY, by_default, params_of
from scaffold.inspect.program.trace import Write
from scaffold.inspect.program.updates import WRITTEN
from scaffold.inspect.program.values import (
    NONE,
    Attr,
    Call,
    Carried,
    Choice,
    Conf,
    Const,
    Elem,
    Index,
    Map,
    Obj,
    Param,
    Seq,
    Slice,
)
from scaffold.source.frame import Frame
from scaffold.source.values import Evidence, External, Func, Unknown, Value

if TYPE_CHECKING:
    from scaffold.inspect.program.core import Execution


MODEL_INDEX = "model_index.json"
"""The file beside the weights that says which pipeline they are for."""


def _hashable(value: object) -> bool:
    return isinstance(value, (str, int, float, bool, bytes, tuple, type(None)))


class Items:
    """Reads and writes of items."""

    def __init__(self, run: Execution) -> None:
        self.run, self.path = run, run.path

    def get_item(self, base: Value, key: Value, at: Evidence | None) -> Value:
        if isinstance(base, Seq):
            return self._seq_item(base, key, at)
        if isinstance(base, Map) and isinstance(key, Const) and _hashable(key.value):
            if key.value in base.items:
                return base.items[key.value]
        if isinstance(base, Param) and isinstance(key, Const) and isinstance(key.value, str):
            return self.param_item(base, key.value, None, at)
        if isinstance(base, Conf) and isinstance(key, Const) and isinstance(key.value, str):
            return self.conf_item(base, key.value, None, at)
        if isinstance(base, Choice):
            real = [o for o in options(base) if not is_none(o)]
            if real and len(real) <= 6 and all(isinstance(o, (Seq, Map)) for o in real):
                return join([self.get_item(o, key, at) for o in real], base.cond if len(real) == 2 else None, at)
            if len(real) == 1:
                return self.get_item(real[0], key, at)
        if isinstance(base, Obj):
            found = base.cls.find_method("__getitem__")
            if found is not None:
                return self.run.call(Func(found[1], found[0].module, found[0], base), [key], {}, at)
        if isinstance(base, Const) and isinstance(base.value, (str, tuple, list)) and isinstance(key, Const):
            try:
                return Const(base.value[key.value], at=at)
            except (TypeError, IndexError, KeyError):
                return Unknown("index out of range")
        return self.run.symbol_item(base, key, at)

    def subscript(self, base: Value, key: Value, node: ast.Subscript, frame: Frame) -> Value:
        value = self.get_item(base, key, self.run.place(node, frame))
        if isinstance(key, Slice):
            self.run.operations.note_edit(value)
        return value

    def put(self, base: Value, key: Value, value: Value, target: ast.Subscript, frame: Frame) -> None:
        self.set_item(base, key, value)
        if isinstance(target.value, ast.Name) and _is_carried(base):
            written = self.run.opaque(External(f"torch.{WRITTEN}"), [base, value], {}, self.run.place(target, frame))
            frame.env[target.value.id] = written

    def _seq_item(self, base: Seq, key: Value, at: Evidence | None) -> Value:
        if isinstance(key, Const) and isinstance(key.value, int) and base.exact:
            if -len(base.items) <= key.value < len(base.items):
                return base.items[key.value]
        if isinstance(key, (Elem, Index)) and base.exact and len(base.items) == 1:
            return base.items[0]
        if isinstance(key, Slice) and base.exact:
            bounds = [b.value if isinstance(b, Const) else None for b in (key.lower, key.upper, key.step)]
            if all(b is None or isinstance(b, Const) for b in (key.lower, key.upper, key.step)):
                try:
                    return Seq(base.kind, base.items[slice(*bounds)], depth=self.path.depth, at=at)
                except (TypeError, ValueError):
                    return Unknown("bad slice")
        return self.run.symbol_item(base, key, at)

    def param_item(self, base: Param, key: str, default: Value | None, at: Evidence | None) -> Value:
        """What the user gave under a key of the prompt or of the extra arguments."""
        if base.root == "sampling_params" and base.key == "extra_args":
            root, name = "extra_args", key
        elif base.root == "media":
            self.run.trace.reads.setdefault(("media", key), at)
            return Param("media", f"{base.key}.{key}", at=at)
        elif base.root in ("extra_args", "prompt"):
            root, name = base.root, f"{base.key}.{key}" if base.key else key
            if root == "prompt" and name == MEDIA_KEY and self.run.with_media:
                self.run.trace.reads.setdefault((root, name), at)
                return Param("media", name, at=at)
        elif base.root == "request":
            root, name = "request", f"{base.key}.{key}"
        else:
            return self.run.symbol_item(base, Const(key), at)
        self.run.trace.reads.setdefault((root, name), at)
        default = self.run.put_in.get((root, name), default)
        given = root == "prompt" and self.is_given(name)
        if given or (self.run.with_everything and (default is None or is_none(default))):
            return Param(root, name, at=at)
        return Param(root, name, default if default is not None else NONE, at=at)

    def is_given(self, name: str) -> bool:
        """Whether the request brings a key of its prompt, or what holds it."""
        return any(name == key or name.startswith(f"{key}.") for key in self.run.demanded)

    def conf_item(self, base: Conf, key: str, default: Value | None, at: Evidence | None) -> Value:
        """A value of a JSON file; the pipeline's own name is what its class is registered under."""
        if (base.file, base.path, key) == (MODEL_INDEX, (), "_class_name") and self.run.model_name is not None:
            return Const(self.run.model_name, at=at)
        return self.run.conf(base.file, (*base.path, key), default, at)

    def demands(self, cond: Value) -> bool:
        """Whether a condition that leads to a refusal asks for what a prompt brings; it is there from now on."""
        wanted = {p.key for p in params_of(cond) if p.root == "prompt" and p.key not in ("", "prompt")}
        if self.run.with_media:
            self.run.demanded |= wanted
        return self.run.with_media and bool(wanted)

    def put_param(self, base: Param, key: Value, value: Value) -> None:
        """Remember what the pipeline itself puts under a key of the extra arguments, as that key's default."""
        root = "extra_args" if (base.root, base.key) == ("sampling_params", "extra_args") else base.root
        if root not in ("extra_args", "prompt") or not (isinstance(key, Const) and isinstance(key.value, str)):
            return
        name = f"{base.key}.{key.value}" if base.key and base.root == root else key.value
        self.run.trace.put.add((root, name))
        if not self.path.depth and (root, name) not in self.run.trace.reads:
            self.run.trace.own.add((root, name))
        if root == "extra_args":
            self.run.put_in[(root, name)] = value

    def set_item(self, base: Value, key: Value, value: Value) -> None:
        for target in options(base)[:4]:
            if isinstance(target, Param):
                self.put_param(target, key, value)
            weak = self.path.depth > getattr(target, "depth", 0) or isinstance(base, Choice)
            if isinstance(target, Map):
                if isinstance(key, Const) and _hashable(key.value):
                    old = target.items.get(key.value)
                    if weak and old is None:
                        target.maybe.add(key.value)
                        if any(by_default(cond) is (not truth) for cond, truth in self.path.conditions):
                            target.unasked.add(key.value)
                    elif not weak:
                        target.maybe.discard(key.value)
                    elif not any(by_default(cond) is (not truth) for cond, truth in self.path.conditions):
                        target.unasked.discard(key.value)
                    target.items[key.value] = join([value, old]) if weak and old is not None else value
                else:
                    target.exact = False
                    data = self.run.outside.data_of(key) or self.run.outside.data_of(value)
                    if data is not None:
                        self.run.outside.over(target.items, data)
            elif isinstance(target, Seq):
                index = key.value if isinstance(key, Const) else None
                if isinstance(index, int) and target.exact and -len(target.items) <= index < len(target.items):
                    old = target.items[index]
                    target.items[index] = join([value, old]) if weak else value
                else:
                    target.exact = False
                    target.items.append(value)
            elif isinstance(target, Attr) and isinstance(key, Const) and isinstance(key.value, str):
                self.run.trace.writes.append(Write(target, key.value, value, value.at, item=True))
            elif isinstance(target, Call) and target is not value:
                # A tensor written in place is made of what is written, too.
                target.writes.append(value)


def _is_carried(value: Value) -> bool:
    """Whether a value is what a loop carries on, entries of it written at the most."""
    while isinstance(value, Call) and value.name == WRITTEN:
        value = value.args[0]
    return isinstance(value, Carried)
