"""Reads a module's constructors as text: which parameters they make, and of which shapes. Nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from scaffold.bounded import Budget, TooLargeError
from scaffold.errors import ScaffoldError
from scaffold.remap.parameters.layers import layer, shown, tensor_method
from scaffold.remap.parameters.values import ModuleValue, Record, Shape, TensorValue
from scaffold.source.builtin_calls import WRONG
from scaffold.source.classes import ClassInfo
from scaffold.source.frame import Frame
from scaffold.source.modules import ModuleGraph
from scaffold.source.plain import Plain
from scaffold.source.syntax import walk_tree
from scaffold.source.values import UNKNOWN, Bound, ClassRef, Evidence, Func, Stream, Super, UndecidedError, Unknown

MAX_STEPS = 800_000
_HINT = "the text does not tell the parameters; --meta asks the module"
_PLAIN_BASES = ("abc", "builtins", "enum", "typing")
_PLAIN_RESULTS = ("builtins", "dataclasses", "math")


def parameters_of(
    tree: ast.Module, module: str, config: str, values: Mapping[str, Any], label: str
) -> dict[str, Shape]:
    """Return name and shape of every entry of the state dict of a module built from its configuration.

    Args:
        tree: the file that holds both classes.
        module: the module's class; its constructor takes the configuration.
        config: the configuration's class, a dataclass.
        values: fields of the configuration; the others keep their defaults.
        label: how errors name the file.

    Raises:
        ScaffoldError: names the line whose outcome the text does not tell.
    """
    reader = Construction(tree, label)
    classes = []
    try:
        for name in (module, config):  # a class may be made of a call, which is followed
            found = reader.run.scopes.lookup(reader.module, name)
            if not isinstance(found, ClassRef):
                raise ScaffoldError(
                    f"{label} has no class {name}", hint="is it the package that its scaffold.toml says?"
                )
            classes.append(found)
        record = reader.construct(classes[1], [], dict(values))
        return reader.build(classes[0].cls, [record], {}).shapes(reader.budget)
    except UndecidedError as error:
        raise ScaffoldError(reader.placed(error), hint=_HINT) from None
    except TooLargeError as error:
        raise ScaffoldError(reader.placed(UndecidedError(str(error))), hint=_HINT) from None
    except RecursionError:
        raise ScaffoldError(reader.placed(UndecidedError("nested too deeply to read"))) from None
    except WRONG as error:
        # The source is anybody's: what was not foreseen in it is not read.
        raise ScaffoldError(reader.placed(UndecidedError(f"not read ({type(error).__name__})")), hint=_HINT) from None


class Construction(Plain):
    """Constructors over modules and tensors that have shapes and no numbers, as if built on the meta device."""

    def __init__(self, tree: ast.Module, label: str) -> None:
        self.handlers = {
            ast.Try: lambda _, node, frame: self.skip(node),
            ast.While: lambda _, node, frame: self.skip(node),
            ast.With: lambda run, node, frame: run.block(node.body, frame),
        }
        name = label.removesuffix(".py")
        graph = ModuleGraph(None)
        graph.hold({name: tree})
        self.label, self.module = label, graph.own(name)
        self.budget = Budget(MAX_STEPS, lambda: UndecidedError("constructors take too many steps to read"))
        super().__init__(graph, self.budget)

    def placed(self, error: UndecidedError) -> str:
        """Return an error with the line that execution had come to."""
        if error.place is None:
            error.place = Evidence(self.label, self.run.here[1].lineno if self.run.here is not None else 1)
        return str(error)

    def skip(self, node: ast.stmt) -> bool:
        if _makes_modules([node]):
            raise UndecidedError("modules are made where the text does not tell how often")
        return True

    def open_if(self, node: ast.If, frame: Frame) -> bool:
        if _makes_modules([*node.body, *node.orelse]):
            raise UndecidedError("a condition decides over modules and is not known")
        return True

    def other(self, node: ast.AST, frame: Frame) -> Any:
        return UNKNOWN

    def iterate(self, value: Any) -> list[Any]:
        if isinstance(value, ModuleValue):
            return list(value.children.values())
        if isinstance(value, (Unknown, Record, TensorValue)):
            raise UndecidedError(f"a loop runs over {shown(value)}")
        return super().iterate(value)

    def keywords(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise UndecidedError("the keywords of a call are not known")
        return super().keywords(value)

    def operate(self, kind: type[ast.AST], args: list[Any], at: Evidence | None) -> Any:
        tensors = [arg for arg in args if isinstance(arg, TensorValue)]
        if not tensors:
            return super().operate(kind, args, at)
        return TensorValue(tensors[0].shape) if len(tensors) == 1 and len(args) == 2 else UNKNOWN

    def get_attr(self, base: Any, name: str, at: Evidence | None = None) -> Any:
        if isinstance(base, ModuleValue):
            return base.get(name) if base.has(name) else self._member(base, base.cls, name)
        if isinstance(base, Record):
            return base.fields[name] if name in base.fields else self._member(base, base.cls, name)
        if isinstance(base, TensorValue):
            known = {"shape": base.shape, "ndim": len(base.shape), "is_meta": True, "data": base}
            return known[name] if name in known else Bound(base, name)
        if isinstance(base, Super):
            cls = base.obj.cls if isinstance(base.obj, (ModuleValue, Record)) else None
            found = cls.find_method(name, base.owner) if cls is not None else None
            return Bound(base.obj, name) if found is None else Func(found[1], found[0].module, found[0], base.obj)
        return super().get_attr(base, name, at)

    def has_attr(self, base: Any, name: str) -> Any:
        if isinstance(base, (ModuleValue, Record)):
            return not isinstance(self.get_attr(base, name), (Unknown, Bound))
        return super().has_attr(base, name)

    def _member(self, base: ModuleValue | Record, cls: ClassInfo | None, name: str) -> Any:
        """A method, a property or a class attribute."""
        found = cls.find_method(name) if cls is not None else None
        if found is not None:
            owner, node = found
            marks = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
            func = Func(node, owner.module, owner, None if "staticmethod" in marks else base)
            return self.call(func, [], {}) if marks & {"property", "cached_property"} else func
        assigned = cls.find_assign(name) if cls is not None else None
        if assigned is not None:
            return self.run.evaluate_global(assigned[1], assigned[0].module)
        return Bound(base, name) if isinstance(base, ModuleValue) else UNKNOWN

    def set_attr(self, base: Any, name: str, value: Any) -> None:
        if isinstance(value, Unknown) and value.reason:
            raise UndecidedError(value.reason)
        if isinstance(base, ModuleValue):
            base.put(name, value)

    def put(self, base: Any, key: Any, value: Any, target: ast.Subscript, frame: Frame) -> None:
        if isinstance(base, ModuleValue):
            base.put(str(key), value)
        else:
            super().put(base, key, value, target, frame)

    def item(self, base: Any, key: Any, node: ast.Subscript) -> Any:
        return base.children.get(str(key), UNKNOWN) if isinstance(base, ModuleValue) else UNKNOWN

    def construct(self, cls: ClassRef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        info = cls.cls
        if any(_may_be_module(base) for owner in info.mro for base in owner.external_bases):
            return self.build(info, args, kwargs)
        made = Record(info)
        fields = info.all_fields()
        given = dict(zip((name for _, name, _ in fields), args, strict=False)) | kwargs
        for owner, name, default in fields:
            if name in given:
                made.fields[name] = given[name]
            else:
                made.fields[name] = UNKNOWN if default is None else self._default(default, owner)
        return made

    def _default(self, node: ast.expr, owner: ClassInfo) -> Any:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "field":
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            if "default_factory" in given:
                return self.call(self.run.evaluate_global(given["default_factory"], owner.module), [], {})
            return self._default(given["default"], owner) if "default" in given else UNKNOWN
        return self.run.evaluate_global(node, owner.module)

    def build(self, cls: ClassInfo, args: list[Any], kwargs: dict[str, Any]) -> ModuleValue:
        """Return the module that a class's constructor makes."""
        made = ModuleValue(cls=cls)
        init = cls.find_method("__init__")
        if init is not None:
            self.call(Func(init[1], init[0].module, init[0], made), args, kwargs)
        return made

    def call_external(self, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if path.startswith("torch."):
            try:
                return layer(path, [a.items if isinstance(a, Stream) else a for a in args], kwargs)
            except TypeError:
                raise UndecidedError(f"the arguments of {path} are not understood") from None
        module, _, last = path.rpartition(".")
        if last[:1].isupper() and module != "builtins":
            raise UndecidedError(f"{last} comes from {module}, which is not read")
        return UNKNOWN if path.partition(".")[0] in _PLAIN_RESULTS else Unknown(f"what {path} returns is not read")

    def known_method(self, receiver: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(receiver, TensorValue):
            return tensor_method(receiver, name)
        if not isinstance(receiver, ModuleValue):
            return UNKNOWN
        if name in ("register_parameter", "add_module", "register_module") and len(args) == 2:
            return receiver.put(str(args[0]), args[1])
        if name == "register_buffer" and args:
            tensor = args[1] if len(args) > 1 else kwargs.get("tensor")
            persistent = args[2] if len(args) > 2 else kwargs.get("persistent", True)
            if persistent is False or tensor is None:
                return receiver.put(str(args[0]), UNKNOWN)
            if not isinstance(tensor, TensorValue):
                raise UndecidedError(f"the shape of the buffer {args[0]!r} is not known")
            receiver.tensors[str(args[0])] = tensor.shape
        elif name == "append" and len(args) == 1 and isinstance(args[0], ModuleValue):
            receiver.put(str(len(receiver.children)), args[0])
        return UNKNOWN


def _may_be_module(base: str) -> bool:
    return "." in base and base.partition(".")[0] not in _PLAIN_BASES


def _makes_modules(body: list[Any]) -> bool:
    """Whether statements assign attributes or register something, so that skipping them could lose a parameter."""
    for node in (inner for outer in body for inner in walk_tree(outer)):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets):
                return True
        if isinstance(node, ast.Attribute) and node.attr.startswith(("register_", "add_module")):
            return True
    return False
