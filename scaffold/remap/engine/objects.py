"""Attributes and methods of modules, parameters and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaffold.inspect.program.algebra import is_none, options
from scaffold.inspect.program.values import Obj
from scaffold.remap.engine.auto_loader import LOADER
from scaffold.remap.engine.naming import SlotTable, slot_items
from scaffold.remap.engine.plain import plain
from scaffold.remap.engine.tokens import Loader, Mapper, Module, Slot, SlotLoader, SlotShape, Symbol, Weight
from scaffold.remap.engine.tree import EngineModule
from scaffold.source.classes import ClassInfo
from scaffold.source.values import UNKNOWN, Bound, ClassRef, Func

if TYPE_CHECKING:
    from scaffold.remap.engine.domain import Loading

_NUMBER = "{n}"
_PARAMETER_LISTS = (
    "named_parameters", "state_dict", "named_buffers", "parameters", "buffers", "named_modules", "modules",
    "named_children", "children", "get_submodule", "get_parameter", "load_state_dict",
)  # fmt: skip
_KEPT = ("to", "contiguous", "clone", "detach", "cpu", "type", "float", "half", "bfloat16", "requires_grad_", "cuda")
"""Methods of a tensor that change neither what it holds nor its shape."""


KINDS = (Module, Weight, Slot, SlotShape, SlotLoader, Symbol, ClassRef, Loader, Mapper)


class Objects:
    """Reads of attributes, and calls of the methods of modules and weights."""

    def __init__(self, domain: Loading) -> None:
        self.domain = domain

    def get_attr(self, base: Any, name: str) -> Any:
        """Return an attribute of one of ``KINDS``."""
        if isinstance(base, Module):
            return self._module_attr(base, name)
        if isinstance(base, Weight):
            if name in ("shape", "data"):
                return base if name == "data" else base.shape if base.shape is not None else UNKNOWN
            if name == "ndim":
                return len(base.shape) if base.shape is not None else UNKNOWN
            return UNKNOWN if name in ("dtype", "device", "is_meta", "T") else Bound(base, name)
        if isinstance(base, Slot):
            if name == "data":
                return base
            if name == "shape":
                return SlotShape(base)
            if name == "weight_loader":
                return SlotLoader(base) if base.sharded is not False else UNKNOWN
            return Bound(base, name) if name in ("copy_", "size") else UNKNOWN
        if isinstance(base, (Symbol, ClassRef)):
            value = base.value if isinstance(base, Symbol) else base
            return self.settle(self.domain.program.execution.get_attr(value, name))
        if isinstance(base, (SlotShape, SlotLoader)):
            return UNKNOWN
        return Bound(base, name)

    def settle(self, value: Any) -> Any:
        """Return a value of the construction as one of this execution."""
        for option in options(value):
            if isinstance(option, Obj):
                node = self.node_of(option)
                if node is not None:
                    return Module(node)
            if isinstance(option, Func) and option is value:
                return Func(option.node, option.module, option.owner, self._bound(option))
        found = [plain(option, self.domain.configs) for option in options(value) if not is_none(option)]
        return plain(value, self.domain.configs) if len(found) != 1 or is_none(value) else found[0]

    def _bound(self, func: Func) -> Any:
        if isinstance(func.bound, Obj):
            node = self.node_of(func.bound)
            return Module(node) if node is not None else Symbol(func.bound)
        return None if func.bound is None else Symbol(func.bound)

    def node_of(self, obj: Obj) -> EngineModule | None:
        """Return the module that an object of the construction is."""
        return next((node for _, node in self.domain.tree.walk() if node.obj is obj), None)

    def _module_attr(self, base: Module, name: str) -> Any:
        node = base.node
        if name in node.attributes:
            return node.attributes[name]
        if name in node.children:
            return self.child_of(base, name)
        if name in (node.parameters or ()):
            return Slot(f"{node.place}.{name}" if node.place else name, node.sharded)
        found = self.method(base, name)
        if found is not None:
            return found
        if name in _PARAMETER_LISTS:
            return Bound(base, name)
        if node.obj is not None:
            value = self.settle(self.domain.program.execution.get_attr(node.obj, name))
            if not isinstance(value, Symbol) or not _is_missing(value, node.obj, name):
                return value
        return UNKNOWN

    def has_attr(self, base: Any, name: str) -> Any:
        """Whether a value has an attribute, or unknown; None for values of other kinds."""
        if isinstance(base, Slot) and name == "weight_loader":
            return UNKNOWN if base.sharded is None else base.sharded
        if isinstance(base, Module):
            node = base.node
            if name in node.attributes or name in node.children or name in (node.parameters or ()):
                return True
            if self.method(base, name) is not None or name in _PARAMETER_LISTS:
                return True
            if node.obj is None or node.open:
                return UNKNOWN if node.open else False
            return name in node.obj.attrs or node.obj.cls.find_assign(name) is not None
        if isinstance(base, Weight):
            return True if name in ("shape", "ndim", "dtype", "device") else UNKNOWN
        return None

    def made(self, cls: ClassRef) -> Symbol:
        """Return an object of a class."""
        return Symbol(Obj(cls.cls))

    def method(self, base: Module, name: str, after: ClassInfo | None = None) -> Any:
        """Return a method of a module's class, bound to it; the package's class comes before the pipeline's."""
        cls = base.node.obj.cls if base.node.obj is not None else None
        if base.node is self.domain.tree and self.domain.handler is not None:
            cls = self.domain.handler
        found = cls.find_method(name, after) if cls is not None else None
        if found is None:
            return None
        owner, node = found
        marks = {getattr(d, "id", getattr(d, "attr", "")) for d in node.decorator_list}
        bound = None if "staticmethod" in marks else base
        function = Func(node, owner.module, owner, bound)
        return self.domain.call(function, [], {}) if marks & {"property", "cached_property"} else function

    def own_loader(self, module: Module) -> Func | None:
        found = self.method(module, LOADER)
        return found if isinstance(found, Func) else None

    def child_of(self, module: Module, name: str) -> Module:
        child = module.node.child(name)
        assert child is not None
        if _NUMBER not in child.place or not name.isdigit():
            return Module(child)
        return Module(_numbered(child, name))

    def item(self, base: Module, key: Any) -> Any:
        """Return a module of a list or a table of modules."""
        if isinstance(key, (int, str)) and base.node.child(str(key)) is not None:
            return self.child_of(base, str(key))
        return UNKNOWN

    def call_module(self, module: Module, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call one of ``nn.Module``'s own methods."""
        node = module.node
        if name in ("named_parameters", "parameters", "state_dict"):
            items = slot_items(
                node,
                self.domain.counts,
                deduplicate=name != "state_dict",
                recurse=kwargs.get("recurse", True) is not False,
            )
            if name == "state_dict":
                return SlotTable(items, items.opened)
            return items if name == "named_parameters" else [slot for _, slot in items]
        if name in ("named_buffers", "buffers"):
            return []
        if name in ("named_modules", "modules"):
            found = [(path, Module(child)) for path, child in node.walk(deduplicate=True)]
            return found if name == "named_modules" else [child for _, child in found]
        if name in ("named_children", "children"):
            held = [(path, self.child_of(module, path)) for path in node.children]
            return held if name == "named_children" else [child for _, child in held]
        if name == "get_submodule" and args and isinstance(args[0], str):
            inner = module
            for part in args[0].split(".") if args[0] else []:
                if inner.node.child(part) is None:
                    return UNKNOWN
                inner = self.child_of(inner, part)
            return inner
        if name == "load_state_dict" and args and isinstance(args[0], dict):
            table = SlotTable(slot_items(node, self.domain.counts, deduplicate=False), _opened(node, self.domain))
            for key, value in args[0].items():
                if key in table:
                    self.domain.land(table[key], value, [])
            return UNKNOWN
        return UNKNOWN

    def call_weight(self, weight: Weight, name: str, args: list[Any]) -> Any:
        """Call a method of a tensor; the result is a part of the same weight."""
        if name in _KEPT:
            return weight
        if name == "size":
            if weight.shape is None:
                return UNKNOWN
            return weight.shape if not args else weight.shape[args[0]] if isinstance(args[0], int) else UNKNOWN
        if name in ("dim", "ndimension"):
            return len(weight.shape) if weight.shape is not None else UNKNOWN
        if name in ("numel", "item", "element_size", "is_floating_point", "tolist", "any", "all", "equal"):
            return UNKNOWN
        if name in ("chunk", "split", "unbind", "tensor_split"):
            count = args[0] if args and isinstance(args[0], int) and name == "chunk" else None
            sizes = args[0] if args and isinstance(args[0], (list, tuple)) else None
            number = count if count is not None else len(sizes) if sizes is not None else None
            if number is not None and 0 < number < 1000:
                return tuple(weight.part(f"{name} {place}/{number}") for place in range(number))
        return weight.part(name)


def _opened(node: EngineModule, domain: Loading) -> Any:
    return slot_items(node, domain.counts, deduplicate=False).opened


def _numbered(node: EngineModule, number: str, above: tuple[int, ...] = ()) -> EngineModule:
    """A copy of a layer in which the first number of every place is filled in."""
    made = EngineModule(node.kind, node.bases, node.place.replace(_NUMBER, number, 1), {}, node.parameters,
                        node.sharded, node.obj, node.at, node.attributes)  # fmt: skip
    if id(node) not in above:
        made.children = {
            name: _numbered(child, number, (*above, id(node))) if _NUMBER in child.place else child
            for name, child in node.children.items()
        }
    return made


def _is_missing(value: Symbol, obj: Obj, name: str) -> bool:
    from scaffold.inspect.program.values import Attr

    return isinstance(value.value, Attr) and value.value.base is obj and value.value.name == name
