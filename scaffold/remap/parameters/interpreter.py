"""Reads a module's constructors as text: which parameters they make, and of which shapes. Nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from scaffold.bounded import Budget, call
from scaffold.errors import ScaffoldError
from scaffold.remap.parameters.expressions import FUNCTIONS, Environment, Expressions
from scaffold.remap.parameters.layers import UnreadableError, layer
from scaffold.remap.parameters.values import UNKNOWN, Callee, ModuleValue, Opaque, Record, Shape, TensorValue

MAX_DEPTH = 40
MAX_STEPS = 800_000


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
    reader = Interpreter(tree, label)
    for name in (module, config):
        if name not in reader.classes:
            raise ScaffoldError(f"{label} has no class {name}", hint="is it the package that its scaffold.toml says?")
    try:
        record = reader.record(reader.classes[config], [], dict(values))
        return reader.build(reader.classes[module], [record], {}).shapes(reader.budget)
    except UnreadableError as error:
        raise ScaffoldError(
            f"{label}:{reader.line}: {error}", hint="the text does not tell the parameters; --meta asks the module"
        ) from None
    except RecursionError:
        raise ScaffoldError(f"{label}:{reader.line}: nested too deeply to read") from None


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class Interpreter(Expressions):
    """Runs constructors over values that are known from the text."""

    def __init__(self, tree: ast.Module, label: str) -> None:
        self.label = label
        self.line = 1
        self.depth = 0
        self.budget = Budget(MAX_STEPS, lambda: UnreadableError("constructors take too many steps to read"))
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.constants: dict[str, ast.expr] = {}
        self.aliases: dict[str, str] = {}
        for node in tree.body:
            if isinstance(node, ast.Import):
                for name in node.names:
                    self.aliases[name.asname or name.name.partition(".")[0]] = (
                        name.name if name.asname else name.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    self.aliases[name.asname or name.name] = f"{node.module or ''}.{name.name}"
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self.constants[node.target.id] = node.value

    def global_value(self, name: str) -> Any:
        """Return a name of the file: a class or function, an import, a constant."""
        if name in self.classes or name in self.functions:
            return Callee(name)
        if name in self.aliases:
            return Callee(self.aliases[name])
        if name in self.constants:
            return self.evaluate(self.constants.pop(name), {})
        return Callee(name) if name in FUNCTIONS or name in ("range", "getattr", "super", "setattr") else UNKNOWN

    def record(self, cls: ast.ClassDef, args: list[Any], kwargs: dict[str, Any]) -> Record:
        """Return an instance of a dataclass."""
        made = Record(cls)
        fields = [n for n in cls.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
        given = dict(zip((n.target.id for n in fields if isinstance(n.target, ast.Name)), args, strict=False)) | kwargs
        for node in fields:
            assert isinstance(node.target, ast.Name)
            name = node.target.id
            if name in given:
                made.fields[name] = given[name]
            else:
                made.fields[name] = UNKNOWN if node.value is None else self.evaluate(node.value, {})
        return made

    def attribute_of(self, record: Record, name: str) -> Any:
        """Return a field or a property of an instance."""
        if name in record.fields:
            return record.fields[name]
        method = _method(record.cls, name)
        if method is None or not any(isinstance(d, ast.Name) and "property" in d.id for d in method.decorator_list):
            return UNKNOWN
        return self._function(method, [record], {})

    def build(self, cls: ast.ClassDef, args: list[Any], kwargs: dict[str, Any]) -> ModuleValue:
        """Return the module that a class's constructor makes."""
        made = ModuleValue(cls=cls)
        self._construct(cls, made, args, kwargs)
        return made

    def _construct(self, cls: ast.ClassDef, made: ModuleValue, args: list[Any], kwargs: dict[str, Any]) -> None:
        init = _method(cls, "__init__")
        if init is not None:
            self._function(init, [made, *args], kwargs, cls)
            return
        for base in cls.bases:
            if isinstance(base, ast.Name) and base.id in self.classes:
                self._construct(self.classes[base.id], made, args, kwargs)
                return

    def _is_module(self, cls: ast.ClassDef) -> bool:
        for base in cls.bases:
            named = self.evaluate(base, {})
            if isinstance(named, Callee):
                if named.name in self.classes:
                    return self._is_module(self.classes[named.name])
                if "." in named.name and not named.name.startswith(("abc.", "typing.", "enum.")):
                    return True
        return False

    def _function(
        self, node: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any], owner: ast.ClassDef | None = None
    ) -> Any:
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        env: Environment = {}
        defaults = node.args.defaults
        for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            env[name] = self.evaluate(default, {})
        for name, given in zip((a.arg for a in node.args.kwonlyargs), node.args.kw_defaults, strict=True):
            env[name] = UNKNOWN if given is None else self.evaluate(given, {})
        env |= dict(zip(names, args, strict=False))
        if node.args.vararg is not None:
            env[node.args.vararg.arg] = list(args[len(names) :])
        known = {*names, *(a.arg for a in node.args.kwonlyargs)}
        env |= {name: value for name, value in kwargs.items() if name in known}
        if node.args.kwarg is not None:
            env[node.args.kwarg.arg] = {name: value for name, value in kwargs.items() if name not in known}
        for name in names:
            env.setdefault(name, UNKNOWN)
        env["__class__"] = owner
        if self.depth > MAX_DEPTH:
            raise UnreadableError("constructors are nested too deeply")
        self.depth += 1
        try:
            self._block(node.body, env)
        except _Return as done:
            return done.value
        finally:
            self.depth -= 1
        return None

    def _block(self, body: list[ast.stmt], env: Environment) -> None:
        for node in body:
            self.line = node.lineno
            self.budget.spend()
            self._statement(node, env)

    def _statement(self, node: ast.stmt, env: Environment) -> None:
        if isinstance(node, ast.Assign):
            value = self.evaluate(node.value, env)
            for target in node.targets:
                if isinstance(value, Opaque) and isinstance(target, ast.Attribute):
                    self._refuse_foreign(node.value, env)
                self.bind(target, value, env)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.bind(node.target, self.evaluate(node.value, env), env)
        elif isinstance(node, ast.AugAssign):
            self.bind(node.target, self.evaluate(ast.BinOp(node.target, node.op, node.value), env), env)
        elif isinstance(node, ast.Expr):
            self.evaluate(node.value, env)
        elif isinstance(node, ast.Return):
            raise _Return(None if node.value is None else self.evaluate(node.value, env))
        elif isinstance(node, ast.If):
            test = self.evaluate(node.test, env)
            if not isinstance(test, Opaque):
                self._block(node.body if test else node.orelse, env)
            elif _makes_modules([*node.body, *node.orelse]):
                raise UnreadableError("a condition decides over modules and is not known")
        elif isinstance(node, ast.For):
            for item in self.items(self.evaluate(node.iter, env)):
                self.bind(node.target, item, env)
                self._block(node.body, env)
        elif isinstance(node, ast.With):
            self._block(node.body, env)
        elif isinstance(node, ast.While | ast.Try) and _makes_modules([node]):
            raise UnreadableError("modules are made where the text does not tell how often")

    def call(self, callee: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call, env: Environment) -> Any:
        """Return what a call gives; a module from elsewhere cannot be read."""
        if isinstance(node.func, ast.Attribute):
            base = self.evaluate(node.func.value, env)
            if isinstance(base, ModuleValue):
                return self._method_call(base, node.func.attr, args, kwargs)
            if isinstance(node.func.value, ast.Call) and node.func.attr == "__init__":
                return self._super(args, kwargs, env)
        if not isinstance(callee, Callee):
            return UNKNOWN
        name = callee.name
        if name in self.classes:
            cls = self.classes[name]
            return self.build(cls, args, kwargs) if self._is_module(cls) else self.record(cls, args, kwargs)
        if name in self.functions:
            return self._function(self.functions[name], args, kwargs)
        if name == "range":
            return range(*args)
        if name == "getattr" and len(args) > 1 and isinstance(args[0], Record):
            found = self.attribute_of(args[0], args[1])
            return args[2] if isinstance(found, Opaque) and len(args) > 2 else found
        if name == "setattr" and len(args) == 3 and isinstance(args[0], ModuleValue) and isinstance(args[1], str):
            return args[0].put(args[1], args[2])
        if name in FUNCTIONS:
            return call(FUNCTIONS[name], *args, **kwargs)
        if name.startswith("torch."):
            try:
                return layer(name, args, kwargs)
            except TypeError:
                raise UnreadableError(f"the arguments of {name} are not understood") from None
        last = name.rpartition(".")[2]
        if "." in name and last[:1].isupper():
            raise UnreadableError(f"{last} comes from {name.rpartition('.')[0]}, which is not read")
        return UNKNOWN

    def _refuse_foreign(self, node: ast.expr, env: Environment) -> None:
        """Refuse an attribute that a function of another file returns: it may be a module."""
        for inner in ast.walk(node):
            callee = self.evaluate(inner.func, env) if isinstance(inner, ast.Call) else None
            if isinstance(callee, Callee) and "." in callee.name and not callee.name.startswith(("torch.", "math.")):
                raise UnreadableError(f"what {callee.name} returns is not read")

    def _super(self, args: list[Any], kwargs: dict[str, Any], env: Environment) -> None:
        cls, made = env.get("__class__"), env.get("self")
        for base in cls.bases if isinstance(cls, ast.ClassDef) else []:
            if isinstance(base, ast.Name) and base.id in self.classes and isinstance(made, ModuleValue):
                self._construct(self.classes[base.id], made, args, kwargs)
                return

    def _method_call(self, made: ModuleValue, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name in ("register_parameter", "add_module", "register_module") and len(args) == 2:
            return made.put(str(args[0]), args[1])
        if name == "register_buffer" and args:
            tensor = args[1] if len(args) > 1 else kwargs.get("tensor")
            persistent = args[2] if len(args) > 2 else kwargs.get("persistent", True)
            if persistent is False or tensor is None:
                return made.put(str(args[0]), UNKNOWN)
            if not isinstance(tensor, TensorValue):
                raise UnreadableError(f"the shape of the buffer {args[0]!r} is not known")
            made.tensors[str(args[0])] = tensor.shape
            return None
        if name == "append" and len(args) == 1 and isinstance(args[0], ModuleValue):
            return made.put(str(len(made.children)), args[0])
        method = _method(made.cls, name) if made.cls is not None else None
        return UNKNOWN if method is None else self._function(method, [made, *args], kwargs, made.cls)


def _method(cls: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _makes_modules(body: list[Any]) -> bool:
    """Whether statements assign attributes or register something, so that skipping them could lose a parameter."""
    for node in (inner for outer in body for inner in ast.walk(outer)):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
                return True
        if isinstance(node, ast.Attribute) and node.attr.startswith(("register_", "add_module")):
            return True
    return False
