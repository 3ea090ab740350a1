"""Python of the tree: files, functions and classes, and what a tree answers about their names. Nothing is executed."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from scaffold.check.model.python_text import PythonText
from scaffold.check.model.source import PatchedFile
from scaffold.source.bindings import Binding, assigned
from scaffold.source.syntax import without_docstring


class PythonFile(PythonText):
    """A Python file below the root of a tree.

    Args:
        path: POSIX path below the root.
        data: its bytes.
        project: the tree.
        patched: as in `SourceFile`, for text out of a patch.
    """

    def __init__(self, path: str, data: bytes, project: Resolution, patched: PatchedFile | None = None) -> None:
        super().__init__(path, data, patched)
        self.project = project

    @cached_property
    def classes(self) -> list[ClassModel]:
        """Classes at module level, in the order of the text; those in ``if`` and ``try`` count."""

        return [
            ClassModel(self, binding.node)
            for bindings in self.names.values()
            for binding in bindings
            if isinstance(binding.node, ast.ClassDef)
        ]

    @cached_property
    def functions(self) -> list[FunctionModel]:
        """Functions at module level."""

        return [
            FunctionModel(self, binding.node)
            for bindings in self.names.values()
            for binding in bindings
            if isinstance(binding.node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]

    @cached_property
    def all_functions(self) -> list[FunctionModel]:
        """Functions at module level and methods of the classes."""
        return [*self.functions, *(method for cls in self.classes for method in cls.methods.values())]

    def find_class(self, name: str) -> ClassModel | None:
        """Return the class of that name at module level; None where there is none or more than one."""
        found = [cls for cls in self.classes if cls.name == name]
        return found[0] if len(found) == 1 else None

    def function_around(self, node: ast.AST) -> FunctionModel | None:
        """Return the module-level function or the method whose body holds ``node``, nested functions included."""
        if node in self._functions_by_node:
            return self._functions_by_node[node]
        for outer in self.index.ancestors(node):
            if outer in self._functions_by_node:
                return self._functions_by_node[outer]
        return None

    @cached_property
    def _functions_by_node(self) -> dict[ast.AST, FunctionModel]:
        return {function.node: function for function in self.all_functions}

    def qualified(self, node: ast.AST) -> str | None:
        """Return the absolute dotted name of ``a.b.c``; see `Resolution.qualified`."""
        return self.project.qualified(self, node)

    def value(self, node: ast.expr) -> object:
        """Return the value of an expression, or `UNKNOWN`; see `constants.evaluate`."""
        return self.project.value(self, node)


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class FunctionModel:
    """A function at module level, or a method.

    Args:
        file: where it stands.
        node: its definition.
        cls: its class; None for a function.

    Attributes:
        reached: answers of `scaffold.check.model.dataflow.reaching`.
    """

    def __init__(self, file: PythonFile, node: FunctionNode, cls: ClassModel | None = None) -> None:
        self.file, self.node, self.cls, self.name = file, node, cls, node.name
        self.reached: dict[ast.Name, list[Binding]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionModel) and other.node is self.node

    def __hash__(self) -> int:
        return hash(self.node)

    @property
    def qualname(self) -> str:
        """Dotted name from the module on."""
        return ".".join([self.file.module, *([self.cls.name] if self.cls else []), self.name])

    @cached_property
    def decorators(self) -> list[str]:
        """Dotted names of the decorators, calls without their arguments; unresolvable ones are left out."""
        found = []
        for decorator in self.node.decorator_list:
            name = self.file.qualified(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if name is not None:
                found.append(name)
        return found

    @cached_property
    def bound(self) -> str | None:
        """Name of the first parameter where Python passes it (``self``, ``cls``); None for functions."""
        if self.cls is None or "staticmethod" in self.decorators:
            return None
        arguments = [*self.node.args.posonlyargs, *self.node.args.args]
        return arguments[0].arg if arguments else None

    @cached_property
    def positional(self) -> list[str]:
        """Positional parameters in order, without ``self`` or ``cls``."""
        names = [argument.arg for argument in (*self.node.args.posonlyargs, *self.node.args.args)]
        return names[1:] if self.bound is not None else names

    @cached_property
    def parameters(self) -> list[str]:
        """All named parameters, without ``self`` or ``cls`` and without ``*args`` and ``**kwargs``."""
        return [*self.positional, *(argument.arg for argument in self.node.args.kwonlyargs)]

    @cached_property
    def required(self) -> list[str]:
        """Parameters without a default."""
        arguments = self.node.args
        with_default = len(arguments.defaults)
        head = self.positional[: len(self.positional) - with_default] if with_default else self.positional
        keyword = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        return [*head, *(argument.arg for argument, default in keyword if default is None)]

    def default(self, parameter: str) -> ast.expr | None:
        """Return the default of a parameter."""
        arguments = self.node.args
        named = [*arguments.posonlyargs, *arguments.args]
        pairs = list(zip(reversed(named), reversed(arguments.defaults), strict=False))
        pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
        return next((default for argument, default in pairs if argument.arg == parameter), None)

    def parameter_node(self, parameter: str) -> ast.arg | None:
        """Return the node of a parameter."""
        arguments = self.node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        return next((argument for argument in every if argument is not None and argument.arg == parameter), None)

    @property
    def vararg(self) -> str | None:
        """Name of ``*args``."""
        return self.node.args.vararg.arg if self.node.args.vararg else None

    @property
    def kwarg(self) -> str | None:
        """Name of ``**kwargs``."""
        return self.node.args.kwarg.arg if self.node.args.kwarg else None

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls in the body, those in nested functions and lambdas included; not those in decorators."""
        calls = self.file.index.nodes(ast.Call, self.node)
        around = [*self.node.decorator_list, self.node.args]
        return [call for call in calls if not any(self.file.index.contains(node, call) for node in around)]

    @cached_property
    def assignments(self) -> tuple[tuple[str, ast.expr], ...]:
        """Name and value of every plain assignment in it; ``self.x = …`` as ``.x``."""
        return tuple(_assignments(self.file.index.walk(self.node)))

    @cached_property
    def returns(self) -> list[ast.Return]:
        """Its own return statements, not those of nested functions."""
        return [node for node in self.file.index.own(self.node) if isinstance(node, ast.Return)]

    @cached_property
    def is_abstract(self) -> bool:
        """Whether the body does nothing but raise NotImplementedError, pass or ``...`` (docstring aside)."""
        body = without_docstring(self.node.body)
        if any(name.rpartition(".")[2] == "abstractmethod" for name in self.decorators) or not body:
            return True
        if len(body) > 1 or isinstance(body[0], ast.Pass):
            return len(body) == 1
        if isinstance(body[0], ast.Raise) and body[0].exc is not None:
            raised = body[0].exc.func if isinstance(body[0].exc, ast.Call) else body[0].exc
            return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
        return False

    def nodes(self, kind: type[ast.AST]) -> list[ast.AST]:
        """Return the nodes of a type in the definition."""
        return self.file.index.nodes(kind, self.node)


def _assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield name and value of every plain assignment among nodes; ``self.x = …`` as ``.x``."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _targets(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            if node.value is not None:
                yield from _targets(node.target, node.value)
        elif isinstance(node, (ast.For, ast.comprehension)):
            yield from _targets(node.target, node.iter)


def _targets(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Attribute):
        yield f".{target.attr}", value
    elif isinstance(target, ast.Subscript):
        yield from _targets(target.value, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
        plain = len(values) == len(target.elts)
        for at, item in enumerate(target.elts):
            inner = item.value if isinstance(item, ast.Starred) else item
            yield from _targets(inner, values[at] if plain else value)


class Attribute(NamedTuple):
    """An assignment to an attribute: in the class body, or to ``self.name`` in a method.

    Attributes:
        name: the attribute's.
        value: what is assigned, of ``self.a, self.b = x, y`` its part; None for a bare annotation, a loop, other
            unpacking or ``+=``.
        node: the target.
        file: where it stands.
        method: the method that assigns; None for the class body.
    """

    name: str
    value: ast.expr | None
    node: ast.AST
    file: PythonFile
    method: FunctionModel | None = None


class ClassModel:
    """A class at module level.

    Args:
        file: where it stands.
        node: its definition.
    """

    def __init__(self, file: PythonFile, node: ast.ClassDef) -> None:
        self.file, self.node, self.name = file, node, node.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassModel) and other.node is self.node

    def __hash__(self) -> int:
        return hash(self.node)

    @property
    def qualname(self) -> str:
        """Dotted name from the module on."""
        return f"{self.file.module}.{self.name}"

    @cached_property
    def bases(self) -> list[ClassModel | str | None]:
        """Each base: a class of the tree, else its dotted name, else None where it cannot be resolved."""
        return [self.file.project.class_of(self.file, base) or self.file.qualified(base) for base in self.node.bases]

    @cached_property
    def mro(self) -> list[ClassModel]:
        """The class and its ancestors of the tree, a base after everything that inherits it, as in Python."""
        order: list[ClassModel] = []
        seen: set[ClassModel] = set()
        pending: list[tuple[ClassModel, bool]] = [(self, False)]
        while pending:
            cls, finished = pending.pop()
            if finished:
                order.append(cls)
            elif cls not in seen:
                seen.add(cls)
                pending.append((cls, True))
                # The last base is finished first and so stands last.
                pending += [(base, False) for base in cls.bases if isinstance(base, ClassModel)]
        return order[::-1]

    @cached_property
    def external(self) -> list[str]:
        """Dotted names of ancestors that are not in the tree."""
        return [base for cls in self.mro for base in cls.bases if isinstance(base, str)]

    @cached_property
    def resolved(self) -> bool:
        """Whether every base of every ancestor in the tree has a name."""
        return all(base is not None for cls in self.mro for base in cls.bases) and not any(
            isinstance(base, ast.Starred) for cls in self.mro for base in cls.node.bases
        )

    def derives_from(self, *names: str) -> bool | None:
        """Whether an ancestor has one of the names; None where a base cannot be resolved.

        Args:
            names: class names; one with dots must be equal to the dotted name or to the end of it.
        """
        ancestors = [*(cls.qualname for cls in self.mro[1:]), *self.external]
        if any(name == ancestor or ancestor.endswith("." + name) for name in names for ancestor in ancestors):
            return True
        return False if self.resolved else None

    @cached_property
    def methods(self) -> dict[str, FunctionModel]:
        """Own methods by name; of several with one name the last, as in Python, but a property keeps its getter."""
        found: dict[str, FunctionModel] = {}
        for node in self.file.index.own(self.node):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                method = FunctionModel(self.file, node, self)
                setter = any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)
                if not (setter and node.name in found):
                    found[node.name] = method
        return found

    def method(self, name: str) -> FunctionModel | None:
        """Return the method that the class has, inherited ones from classes of the tree included."""
        return next((cls.methods[name] for cls in self.mro if name in cls.methods), None)

    def super_method(self, name: str, after: ClassModel) -> FunctionModel | None:
        """Return what ``super().name`` is in a method of ``after``, one of the ancestors or the class itself."""
        order = self.mro[self.mro.index(after) + 1 :] if after in self.mro else after.mro[1:]
        return next((cls.methods[name] for cls in order if name in cls.methods), None)

    @cached_property
    def own_attributes(self) -> dict[str, list[Attribute]]:
        """Attributes that the class body assigns."""
        found: dict[str, list[Attribute]] = {}
        for name, bindings in self.file.scopes.bindings(self.node).items():
            for binding in bindings:
                if binding.kind == "variable":
                    found.setdefault(name, []).append(Attribute(name, binding.value, binding.node, self.file))
        return found

    def attribute(self, name: str) -> Attribute | None:
        """Return the last assignment of a class attribute, inherited ones from classes of the tree included."""
        return next((cls.own_attributes[name][-1] for cls in self.mro if name in cls.own_attributes), None)

    @cached_property
    def own_instance_attributes(self) -> dict[str, list[Attribute]]:
        """Assignments to ``self.name`` in the class's own methods."""
        found: dict[str, list[Attribute]] = {}
        index = self.file.index
        for method in self.methods.values():
            owner = method.bound
            for node in index.nodes(ast.Attribute, method.node):
                if not isinstance(node.ctx, ast.Store):
                    continue
                if not (isinstance(node.value, ast.Name) and node.value.id == owner):
                    continue
                value, around = assigned(index, node), index.parent(node)
                if isinstance(around, (ast.Tuple, ast.List)):
                    value = _of_pair(around, index.parent(around), node)
                found.setdefault(node.attr, []).append(Attribute(node.attr, value, node, self.file, method))
        return found

    def instance_attributes(self, name: str) -> list[Attribute]:
        """Return the assignments to ``self.name`` in the class and its ancestors of the tree."""
        return [attribute for cls in self.mro for attribute in cls.own_instance_attributes.get(name, [])]

    @cached_property
    def is_dataclass(self) -> bool:
        """Whether ``dataclasses.dataclass`` decorates it."""
        return any(
            self.file.qualified(decorator.func if isinstance(decorator, ast.Call) else decorator)
            in ("dataclasses.dataclass", "pydantic.dataclasses.dataclass")
            for decorator in self.node.decorator_list
        )

    @cached_property
    def fields(self) -> dict[str, Attribute]:
        """Annotated attributes of the class body, inherited ones first: the fields of a dataclass."""
        found: dict[str, Attribute] = {}
        for cls in reversed(self.mro):
            for node in cls.node.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    if "ClassVar" not in ast.dump(node.annotation):
                        found[node.target.id] = Attribute(node.target.id, node.value, node.target, cls.file)
        return found


def _of_pair(targets: ast.Tuple | ast.List, statement: ast.AST | None, target: ast.AST) -> ast.expr | None:
    """Return the i-th value of ``self.a, self.b = x, y`` for its i-th target."""
    value = statement.value if isinstance(statement, ast.Assign) and targets in statement.targets else None
    if not isinstance(value, (ast.Tuple, ast.List)) or len(value.elts) != len(targets.elts):
        return None
    if any(isinstance(part, ast.Starred) for part in (*value.elts, *targets.elts)):
        return None
    return next(part for item, part in zip(targets.elts, value.elts, strict=True) if item is target)


class Resolution(ABC):
    """Finds what names stand for across the files of a tree.

    Attributes:
        outside: packages that are imported by their own names and stand among verl-omni's in the tree.
        resolved, submodules, reachable: what was found before, for those that ask again.
    """

    def __init__(self, outside: Collection[str] = ()) -> None:
        self.outside = frozenset(outside)
        self.resolved: dict[tuple[ast.Call, ClassModel | None], FunctionModel | ClassModel | None] = {}
        self.submodules: dict[ClassModel, list[Any]] = {}
        self.reachable: dict[tuple[FunctionModel, ClassModel | None], list[FunctionModel]] = {}

    @abstractmethod
    def files(self, folder: str, suffix: str = "") -> list[str]:
        """Return the paths of the files below a folder; links among them."""

    @abstractmethod
    def python(self, path: str) -> PythonFile | None:
        """Return a Python file by its path; None where there is none."""

    @abstractmethod
    def module(self, name: str) -> PythonFile | None:
        """Return the file of a dotted module of the tree."""

    @abstractmethod
    def qualified(self, file: PythonFile, node: ast.AST) -> str | None:
        """Return the absolute dotted name of a name or attribute chain, None where it is not certain.

        Imports and their aliases are followed (``F.relu`` is ``torch.nn.functional.relu``), plain aliases too
        (``X = torch.float32``), star imports of modules of the tree; a builtin that nothing shadows is itself; what
        the module defines is ``module.name``. Parameters, local variables, ``self`` and ``cls`` have no such name.
        """

    @abstractmethod
    def definition(self, name: str) -> tuple[PythonFile, Binding] | None:
        """Return file and binding of a dotted name of the tree, re-exports followed.

        None where it lies outside of the tree, is a module, or is bound more than once.
        """

    @abstractmethod
    def class_of(self, file: PythonFile, node: ast.AST) -> ClassModel | None:
        """Return the class of the tree that an expression names."""

    @abstractmethod
    def class_named(self, name: str) -> ClassModel | None:
        """Return the class of the tree of a dotted name."""

    @abstractmethod
    def function_named(self, name: str) -> FunctionModel | None:
        """Return the function of the tree of a dotted name, ``module.Class.method`` included."""

    @abstractmethod
    def value(self, file: PythonFile, node: ast.expr) -> object:
        """Return the value of an expression, or `UNKNOWN`."""
