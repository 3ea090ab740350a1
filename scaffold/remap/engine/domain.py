"""Loading code executed on names: which parameter of the engine each weight reaches."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, TypeGuard

from scaffold.bounded import Budget
from scaffold.inspect.program import Program
from scaffold.remap.engine.auto_loader import AutoLoader
from scaffold.remap.engine.naming import LayerCounts, SlotItems, SlotNames, SlotTable
from scaffold.remap.engine.objects import KINDS, Objects
from scaffold.remap.engine.plain import mapper
from scaffold.remap.engine.tokens import (
    Landing,
    Loader,
    LoadingError,
    Mapper,
    Module,
    Slot,
    SlotLoader,
    SlotShape,
    Weight,
)
from scaffold.remap.engine.tree import EngineModule
from scaffold.source.builtin_calls import BUILTINS, Builtin
from scaffold.source.classes import ClassInfo
from scaffold.source.frame import Frame
from scaffold.source.modules import ModuleGraph
from scaffold.source.plain import Plain
from scaffold.source.syntax import walk_tree
from scaffold.source.values import (
    UNKNOWN,
    Bound,
    ClassRef,
    Evidence,
    External,
    Func,
    Super,
    UndecidedError,
    Unknown,
)

STEPS = 1_500_000
STEPS_OF_A_WEIGHT = 1000
"""Nodes evaluated before the question is left open."""
_TENSORS: dict[str, tuple[type, ...]] = {"torch.Tensor": (Weight, Slot), "torch.nn.Parameter": (Slot,)}
_LIST_OPTIONS = {
    "skip_prefixes": "skip_prefixes", "skip_substrs": "skip_substrs",
    "ignore_unexpected_prefixes": "ignore_prefixes", "ignore_unexpected_suffixes": "ignore_suffixes",
}  # fmt: skip
_QUIET = ("logger", "logging", "warnings", "print", "log", "_logger", "LOG")


def _getattr(domain: Plain, args: list[Any], kwargs: dict[str, Any]) -> Any:
    is_loader = isinstance(args[0], Slot) and args[1] == "weight_loader"
    return SlotLoader(args[0]) if is_loader else BUILTINS["getattr"](domain, args, kwargs)


class Loading(Plain):
    """Weights by name, and the modules and parameters of the engine that they may reach.

    Attributes:
        landings: what became of each weight, by the name it set out under.
        assumed: what was taken for granted on the way.
        handler: the class of a package that subclasses the pipeline.
        lenient: whether a call that the text does not settle gives an unknown value instead of an error.
        left_open: why such calls were not settled.
    """

    builtins: Mapping[str, Builtin] = {**BUILTINS, "getattr": _getattr}

    def __init__(
        self,
        program: Program,
        tree: EngineModule,
        graph: ModuleGraph,
        counts: LayerCounts,
        configs: Mapping[str, Any],
        handler: ClassInfo | None = None,
    ) -> None:
        self.handlers = {
            ast.Assert: lambda _, node, frame: self.asserts(node, frame),
            ast.Delete: lambda _, node, frame: self.deletes(node, frame),
            ast.Expr: lambda run, node, frame: _is_quiet(node) or bool([run.evaluate(node.value, frame)]),
            ast.Try: lambda _, node, frame: self.tries(node, frame),
        }
        self.budget = Budget(STEPS, lambda: UndecidedError("loading takes too many steps to follow"))
        super().__init__(graph, self.budget, program.scopes.classes)
        self.program, self.tree, self.counts, self.configs, self.handler = program, tree, counts, configs, handler
        self.landings: dict[str, list[Landing]] = {}
        self.assumed: set[str] = set()
        self.lenient = False
        self.left_open: list[str] = []
        self.objects, self.auto_loader = Objects(self), AutoLoader(self)

    @property
    def at(self) -> Evidence | None:
        """Where the execution stands."""
        here = self.run.here
        return Evidence(here[0].file, here[1].lineno) if here is not None else None

    def land(self, slot: Slot, weight: Any, shard: list[Any]) -> None:
        """Record that a weight reached a parameter."""
        text = ", ".join(str(part) for part in shard if not isinstance(part, Unknown))
        for one in _weights(weight):
            pieces = "".join(f"[{piece}]" for piece in one.pieces)
            found = Landing(slot.place, text + pieces, self.at)
            entries = self.landings.setdefault(one.name, [])
            if found not in entries:
                entries.append(found)

    # Operations on weights, and on shapes that no text gives.
    def made_of(self, values: list[Any], how: str) -> Any:
        """Return what an operation that is not read makes of weights; unknown where it was given none."""
        weights = [weight for value in values for weight in _given(value)]
        if not weights:
            return UNKNOWN
        first = weights[0]
        merged = dict.fromkeys(name for weight in weights for name in (weight.name, *weight.merged))
        merged.pop(first.name)
        return Weight(first.name, None, (*first.pieces, how), tuple(merged))

    def decide(self, value: Any) -> bool | None:
        if isinstance(value, Weight):
            raise UndecidedError("a condition on a tensor's values")
        return super().decide(value)

    def operate(self, kind: type[ast.AST], args: list[Any], at: Evidence | None) -> Any:
        if len(args) == 2 and any(isinstance(arg, Weight) for arg in args):
            return self.made_of(args, kind.__name__.lower())
        return super().operate(kind, args, at)

    def equal(self, left: Any, right: Any) -> Any:
        """Compare; the shape of a parameter is taken to be that of the weight that is offered to it."""
        if isinstance(left, SlotShape) or isinstance(right, SlotShape):
            self.assumed.add("shapes of the engine's parameters are the checkpoint's")
            return True
        return super().equal(left, right)

    def compare(self, kind: type[ast.cmpop], left: Any, right: Any, at: Evidence | None) -> Any:
        among_open = kind in (ast.In, ast.NotIn) and isinstance(right, SlotItems)
        return UNKNOWN if among_open else super().compare(kind, left, right, at)

    def parts(self, value: Any, count: int) -> list[Any]:
        if isinstance(value, Weight):
            return [value.part(f"{number}/{count}") for number in range(count)]
        return [UNKNOWN] * count if isinstance(value, SlotShape) else super().parts(value, count)

    def item(self, base: Any, key: Any, node: ast.Subscript) -> Any:
        if isinstance(base, Weight):
            return base.part(ast.unparse(node.slice))
        return self.objects.item(base, key) if isinstance(base, Module) else UNKNOWN

    def no_item(self, key: Any, error: Exception) -> Any:
        if isinstance(error, KeyError):
            raise LoadingError(f"KeyError: {key!r}")
        return UNKNOWN

    def copied(self, kind: str, value: Any) -> Any:
        """What it knows of open modules is kept."""
        if kind == "dict" and isinstance(value, (SlotItems, SlotTable)):
            return SlotTable(value.items() if isinstance(value, SlotTable) else value, value.opened)
        if kind == "set" and isinstance(value, (SlotTable, SlotNames)):
            return SlotNames(value, value.opened)
        return value if kind == "tuple" and isinstance(value, SlotShape) else None

    # Attributes and calls.
    def get_attr(self, base: Any, name: str, at: Evidence | None = None) -> Any:
        if isinstance(base, Super):
            found = self.objects.method(base.obj, name, base.owner) if isinstance(base.obj, Module) else None
            return found if found is not None else Bound(base.obj, name)
        return self.objects.get_attr(base, name) if isinstance(base, KINDS) else super().get_attr(base, name, at)

    def has_attr(self, base: Any, name: str) -> Any:
        found = self.objects.has_attr(base, name)
        return super().has_attr(base, name) if found is None else found

    def set_attr(self, base: Any, name: str, value: Any) -> None:
        if isinstance(base, Module):
            base.node.attributes[name] = value

    def is_instance(self, value: Any, kind: Any) -> Any:
        if not isinstance(value, Module):
            tensors = _TENSORS.get(kind.path) if isinstance(kind, External) else None
            return isinstance(value, tensors) if tensors is not None else super().is_instance(value, kind)
        name = kind.cls.name if isinstance(kind, ClassRef) else kind.path.rpartition(".")[2] if isinstance(
            kind, External) else None  # fmt: skip
        if name is None:
            return UNKNOWN
        return True if name in value.node.bases else UNKNOWN if value.node.open else False

    def call_other(self, func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(func, SlotLoader):
            return self._place(args, kwargs, func.slot)
        return self.made_of([*args, *kwargs.values()], "call")

    def construct(self, cls: ClassRef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.objects.made(cls)

    def follow(self, func: Func, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return super().follow(func, args, kwargs)
        except UndecidedError as error:
            if not self.lenient or not self.run.stack or isinstance(func.node, ast.Lambda):
                raise
            self.left_open.append(str(error))
            return UNKNOWN

    def call_method(
        self, receiver: Any, name: str, args: list[Any], kwargs: dict[str, Any], at: Evidence | None = None
    ) -> Any:
        if isinstance(receiver, (SlotTable, SlotNames)) and name in ("keys", "copy", "items", "values"):
            if isinstance(receiver, SlotNames) or name == "keys":
                return SlotNames(receiver, receiver.opened)
            same = name == "copy"
            return SlotTable(receiver.items(), receiver.opened) if same else list(getattr(receiver, name)())
        return super().call_method(receiver, name, args, kwargs, at)

    def known_method(self, receiver: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(receiver, Module):
            return self.objects.call_module(receiver, name, args, kwargs)
        if isinstance(receiver, Weight):
            return self.objects.call_weight(receiver, name, args)
        if isinstance(receiver, Slot):
            if name == "copy_" and args:
                if not isinstance(args[0], Weight):
                    raise UndecidedError("a parameter is filled from something that is not known")
                self.land(receiver, args[0], [])
            return SlotShape(receiver) if name == "size" else UNKNOWN
        if isinstance(receiver, Loader) and name == "load_weights":
            return self.auto_loader.load_through(receiver, args, kwargs)
        if isinstance(receiver, Mapper):
            return self._map_names(receiver, name, args)
        return self.made_of(args, name)

    def _map_names(self, names: Mapper, name: str, args: list[Any]) -> Any:
        if name not in ("apply", "apply_list") or not args:
            return UNKNOWN
        made = []
        for item in self.iterate(args[0]):
            text = item[0] if isinstance(item, tuple) else item
            new = names.rename(text) if isinstance(text, str) else None
            if new is not None:
                made.append((new, item[1]) if isinstance(item, tuple) else new)
        return made

    def call_external(self, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        last = path.rpartition(".")[2]
        if last == "AutoWeightsLoader":
            return self._auto_loader(args, kwargs)
        if last == "WeightsMapper":
            return mapper(kwargs)
        if last == "default_weight_loader":
            return self._place(args, kwargs)
        if last in ("is_pp_missing_parameter", "is_pp_missing_module"):
            return False
        if last in ("OrderedDict", "defaultdict", "deque"):
            return dict(args[0]) if args and isinstance(args[0], dict) else {}
        if last == "tqdm" and args:
            return args[0]
        return self.made_of([*args, *kwargs.values()], last)

    def _auto_loader(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not args or not isinstance(args[0], Module):
            return UNKNOWN
        options: dict[str, tuple[str, ...]] = {}
        for given, value in kwargs.items():
            if given not in _LIST_OPTIONS or value is None:
                continue
            if isinstance(value, Unknown):
                raise UndecidedError("what the loader skips is not known from the text")
            options[_LIST_OPTIONS[given]] = tuple(text for text in self.iterate(value) if isinstance(text, str))
        return Loader(args[0], **options)

    def _place(self, args: list[Any], kwargs: dict[str, Any], slot: Slot | None = None) -> None:
        """A weight loader's call: parameter, weight, and the shard."""
        values = [*args, *(kwargs[k] for k in ("param", "loaded_weight", "weight") if k in kwargs)]
        rest = [v for k, v in kwargs.items() if k not in ("param", "loaded_weight", "weight")]
        target = next((v for v in values if isinstance(v, Slot)), slot)
        weight = next((v for v in values if isinstance(v, Weight)), None)
        if target is None or weight is None:
            raise UndecidedError("a weight loader's parameter or weight is not known from the text")
        shard = [v for v in values if v is not target and v is not weight]
        self.land(target, weight, [*shard, *rest])

    # Ways that loading takes.
    def open_if(self, node: ast.If, frame: Frame) -> bool:
        checks = [*node.body, *node.orelse]
        if not all(_only_checks(item) for item in checks):
            return super().open_if(node, frame)
        if any(isinstance(n, ast.Raise) for item in checks for n in walk_tree(item)):
            self.assumed.add("checks whose outcome the text does not give pass")
        for name in {n.id for item in checks for n in walk_tree(item) if _is_stored(n)}:
            frame.env[name] = UNKNOWN
        return True

    def raises(self, node: ast.Raise, frame: Frame) -> None:
        shown = ast.unparse(node.exc)[:100] if node.exc is not None else "an error"
        raise LoadingError(f"it raises {shown}")

    def asserts(self, node: ast.Assert, frame: Frame) -> bool:
        test = self.run.evaluate(node.test, frame)
        if not isinstance(test, Weight) and self.decide(test) is False:
            raise LoadingError("an assertion fails")
        return True

    def deletes(self, node: ast.Delete, frame: Frame) -> bool:
        for target in node.targets:
            if isinstance(target, ast.Name):
                frame.env.pop(target.id, None)
            elif isinstance(target, ast.Subscript):
                table, key = self.run.evaluate(target.value, frame), self.run.evaluate(target.slice, frame)
                if isinstance(table, dict):
                    table.pop(key, None)
        return True

    def tries(self, node: ast.Try, frame: Frame) -> bool:
        run = self.run
        mark, loops = run.path.mark(), len(frame.loops)
        try:
            alive = run.block(node.body, frame) and run.block(node.orelse, frame)
        except LoadingError as error:
            run.path.back(mark)
            del frame.loops[loops:]
            handler = next((h for h in node.handlers if _catches(h, str(error))), None)
            if handler is None:
                run.block(node.finalbody, frame)
                raise
            if handler.name:
                frame.env[handler.name] = UNKNOWN
            alive = run.block(handler.body, frame)
        return run.block(node.finalbody, frame) and alive


def _given(value: Any) -> list[Weight]:
    if isinstance(value, Weight):
        return [value]
    if isinstance(value, (list, tuple)) and len(value) <= 100:
        return [weight for item in value for weight in _given(item)]
    return []


def _weights(value: Any) -> list[Weight]:
    if isinstance(value, Weight):
        return [value, *(Weight(name, None, value.pieces) for name in value.merged)]
    return []


def _is_quiet(node: ast.stmt) -> bool:
    """Whether a statement only reports or counts."""
    if isinstance(node, ast.Pass):
        return True
    if isinstance(node, ast.If):
        return all(_is_quiet(item) for item in (*node.body, *node.orelse))
    if isinstance(node, ast.AugAssign):
        return isinstance(node.value, ast.Constant) and isinstance(node.target, ast.Name)
    if not isinstance(node, ast.Expr):
        return False
    if isinstance(node.value, ast.Constant):
        return True
    if not isinstance(node.value, ast.Call):
        return False
    func = node.value.func
    while isinstance(func, ast.Attribute):
        func = func.value
    return isinstance(func, ast.Name) and func.id in _QUIET


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _only_checks(node: ast.stmt) -> bool:
    """Whether a statement does no more than work out local values, report and raise."""
    if _is_quiet(node) or isinstance(node, ast.Raise):
        return True
    if isinstance(node, ast.If):
        return all(_only_checks(item) for item in (*node.body, *node.orelse))
    if isinstance(node, ast.Assign):
        return all(not isinstance(n, (ast.Attribute, ast.Subscript)) or isinstance(n.ctx, ast.Load)
                   for target in node.targets for n in walk_tree(target))  # fmt: skip
    return False


def _catches(handler: ast.ExceptHandler, error: str) -> bool:
    if handler.type is None:
        return True
    names = {n.id for n in walk_tree(handler.type) if isinstance(n, ast.Name)}
    return "Exception" in names or any(name in error for name in names)
