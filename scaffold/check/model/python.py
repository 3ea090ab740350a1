"""Python of the tree: files, functions, classes, the meaning of names and constant expressions. Nothing is executed."""

from __future__ import annotations

import ast
import builtins
import codecs
import io
import tokenize
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from scaffold.check.finding import Span
from scaffold.check.model.source import PatchedFile, SourceFile, UndecodableError
from scaffold.files.layout import CHECKOUT
from scaffold.files.parsing import TooManyPartsError, parse
from scaffold.limits.bounded import Budget, TooLargeError, memory
from scaffold.source.bindings import Binding, Index, LexicalScopes, assigned
from scaffold.source.frame import Frame
from scaffold.source.interpreter import Handler, Interpreter
from scaffold.source.modules import ModuleGraph
from scaffold.source.plain import Plain
from scaffold.source.syntax import without_docstring
from scaffold.source.values import UNKNOWN, External, UndecidedError, Unknown

LARGEST = 20_000_000  # bytes; nobody writes a larger source
ENCODINGS = ("utf-8", "utf-8-sig", "ascii", "iso8859-1")


class UnparsableError(Exception):
    """A Python file cannot be parsed; ``kind`` is ``syntax`` or ``deep``."""

    def __init__(self, kind: str, reason: str, line: int, column: int) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.line, self.column = kind, reason, line, column


class PythonFile(SourceFile):
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
    def encoding(self) -> str:
        """The encoding that a byte-order mark or a coding comment states, else UTF-8.

        Raises:
            UndecodableError: it states none that is known, or one that is not a table of letters: some take time that
                grows with the square of the file, others unpack.
        """
        try:
            stated = tokenize.detect_encoding(io.BytesIO(self.data).readline)[0]
        except SyntaxError as error:
            raise UndecodableError(str(error.msg)) from error
        if codecs.lookup(stated).name not in ENCODINGS:
            raise UndecodableError(f"its encoding is {stated}; sources are UTF-8, ASCII or Latin-1")
        return stated

    @property
    def is_package(self) -> bool:
        """Whether it is an ``__init__.py``."""
        return self.name == "__init__.py"

    @property
    def stem(self) -> str:
        """File name without ``.py``."""
        return self.name.removesuffix(".py")

    @cached_property
    def module(self) -> str:
        """Dotted name under which the file is imported."""
        path = self.folder if self.is_package else self.path.removesuffix(".py")
        return path.replace("/", ".")

    @cached_property
    def problem(self) -> UndecodableError | UnparsableError | None:
        """Why there is no tree; None where there is one."""
        try:
            self._parsed  # noqa: B018
        except (UndecodableError, UnparsableError) as error:
            return error
        return None

    @property
    def tree(self) -> ast.Module:
        """The syntax tree; an empty one where the file cannot be parsed (see `problem`)."""
        return self._empty if self.problem is not None else self._parsed

    @cached_property
    def _empty(self) -> ast.Module:
        return ast.Module(body=[], type_ignores=[])

    @cached_property
    def _parsed(self) -> ast.Module:
        if len(self.data) > LARGEST:
            raise UnparsableError("deep", f"has {len(self.data)} bytes, more than {LARGEST}", 1, 1)
        text = self.text.removeprefix("\ufeff")
        try:
            return _tree(text)
        except TooManyPartsError as error:
            raise UnparsableError("deep", f"cannot be parsed: {error.msg}", 1, 1) from error
        except SyntaxError as error:
            raise UnparsableError("syntax", str(error.msg), error.lineno or 1, error.offset or 1) from error
        except RecursionError as error:
            raise UnparsableError("deep", "is nested too deeply to be parsed", 1, 1) from error
        except MemoryError as error:
            raise UnparsableError("deep", f"is nested too deeply, or too large for {memory()}", 1, 1) from error
        except ValueError as error:
            raise UndecodableError(str(error)) from error

    @cached_property
    def index(self) -> Index:
        """All nodes of the tree."""
        return _index(self.tree)

    @cached_property
    def scopes(self) -> LexicalScopes:
        """The meaning of names."""
        return LexicalScopes(self.index, self.module if self.is_package else self.module.rpartition(".")[0])

    @cached_property
    def names(self) -> dict[str, list[Binding]]:
        """Bindings of the module's own scope."""
        return self.scopes.bindings(self.tree)

    @cached_property
    def stars(self) -> list[tuple[str, ast.ImportFrom]]:
        """Modules imported with ``*``, absolute, with the statement."""
        self.names  # noqa: B018
        return self.scopes.stars

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
        """Return the value of an expression, or `UNKNOWN`; see `evaluate`."""

        return evaluate(self, node)

    def span(self, node: ast.AST) -> Span:
        """Return where a node stands; of a class or function only its name, of a parameter only its name."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None)
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = self.line(line)
            keyword = "class" if isinstance(node, ast.ClassDef) else "def"
            at = text.find(node.name, text.find(keyword, self._characters(line, column)) + len(keyword))
            if at >= 0:
                return Span(line, at + 1, line, at + 1 + len(node.name))
        if isinstance(node, ast.arg):
            start = self._characters(line, column)
            return Span(line, start + 1, line, start + 1 + len(node.arg))
        if isinstance(node, ast.Module) or end_column is None:
            return self.span_of_line(line)
        return Span(line, self._characters(line, column) + 1, end_line, self._characters(end_line, end_column) + 1)

    def _characters(self, line: int, offset: int) -> int:
        text = self.line(line)
        return offset if text.isascii() else len(text.encode()[:offset].decode(errors="replace"))

    @cached_property
    def comments(self) -> dict[int, tuple[int, str]]:
        """Line -> (column, comment with its ``#``); empty where the text cannot be split into tokens."""
        found: dict[int, tuple[int, str]] = {}
        try:
            for token in tokenize.generate_tokens(io.StringIO(self.text, newline="").readline):
                if token.type == tokenize.COMMENT:
                    found[token.start[0]] = (token.start[1] + 1, token.string)
        except (tokenize.TokenError, SyntaxError, UndecodableError):
            pass
        return found


# Fixes are applied in rounds, each of which changes a file or two of the tree.
@lru_cache(maxsize=64)
def _tree(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes are for the linter of the repository
        return parse(text)


@lru_cache(maxsize=64)
def _index(tree: ast.Module) -> Index:
    return Index(tree)


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
        inside = self.file.index.nodes(ast.Call, self.node)
        around = [*self.node.decorator_list, self.node.args]
        return [call for call in inside if not any(self.file.index.contains(node, call) for node in around)]

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


_BUILTINS = frozenset(dir(builtins))
_HOPS = 12
_CHANGING = {
    "append",
    "extend",
    "insert",
    "update",
    "setdefault",
    "pop",
    "remove",
    "add",
    "clear",
    "popitem",
    "discard",
}


class Resolution(ABC):
    """Resolves names across files; a subclass provides the files."""

    def __init__(self, outside: Collection[str] = ()) -> None:
        """``outside`` names packages that are imported by their own names and stand among verl-omni's in the tree."""
        self.outside = frozenset(outside)
        self._changed: dict[PythonFile, frozenset[str]] = {}
        self._names: dict[ast.AST, str | None] = {}
        self._definitions: dict[str, tuple[PythonFile, Binding] | None] = {}
        self.resolved: dict[tuple[ast.Call, ClassModel | None], FunctionModel | ClassModel | None] = {}
        self.submodules: dict[ClassModel, list[Any]] = {}
        self.reachable: dict[tuple[FunctionModel, ClassModel | None], list[FunctionModel]] = {}

    @abstractmethod
    def files(self, folder: str, suffix: str = "") -> list[str]:
        """Return the paths of the files below a folder; links among them."""

    @abstractmethod
    def python(self, path: str) -> PythonFile | None:
        """Return a Python file by its path; None where there is none."""

    def module(self, name: str) -> PythonFile | None:
        """Return the file of a dotted module of the tree."""
        path = self.in_tree(name).replace(".", "/")
        if not path.startswith(("verl_omni/", "examples/", "tests/")) and path != "verl_omni":
            return None
        return self.python(f"{path}.py") or self.python(f"{path}/__init__.py")

    def in_tree(self, name: str) -> str:
        """Return the dotted name that what ``name`` imports has in the tree."""
        return f"{CHECKOUT.prefix}{name}" if name.partition(".")[0] in self.outside else name

    def qualified(self, file: PythonFile, node: ast.AST) -> str | None:
        """Return the absolute dotted name of a name or attribute chain, None where it is not certain.

        Imports and their aliases are followed (``F.relu`` is ``torch.nn.functional.relu``), plain aliases too
        (``X = torch.float32``), star imports of modules of the tree; a builtin that nothing shadows is itself; what
        the module defines is ``module.name``. Parameters, local variables, ``self`` and ``cls`` have no such name.
        """
        if node not in self._names:
            self._names[node] = self._qualified(file, node, 0)
        return self._names[node]

    def _qualified(self, file: PythonFile, node: ast.AST, hops: int) -> str | None:
        if hops > _HOPS:
            return None
        if isinstance(node, ast.Attribute):
            base = self._qualified(file, node.value, hops + 1)
            return f"{base}.{node.attr}" if base is not None else None
        if not isinstance(node, ast.Name):
            return None
        bindings = file.scopes.lookup(node.id, node)
        if not bindings:
            return self._from_star(file, node.id, hops)
        kinds = {binding.kind for binding in bindings}
        if kinds == {"import"}:
            targets = {binding.target for binding in bindings}
            target = targets.pop() if len(targets) == 1 else None
            return self.in_tree(target) if target is not None else None
        if len(bindings) > 1:
            return None
        binding = bindings[0]
        at_module = binding in file.names.get(node.id, ())
        if binding.kind == "variable":
            if isinstance(binding.value, (ast.Name, ast.Attribute)):
                return self._qualified(file, binding.value, hops + 1)
            return f"{file.module}.{node.id}" if at_module else None
        return f"{file.module}.{node.id}" if at_module and binding.kind in ("class", "function") else None

    def definition(self, name: str) -> tuple[PythonFile, Binding] | None:
        """Return file and binding of a dotted name of the tree, re-exports followed.

        None where it lies outside of the tree, is a module, or is bound more than once.
        """
        if name not in self._definitions:
            self._definitions[name] = self._definition(name, 0)
        return self._definitions[name]

    def _definition(self, name: str, hops: int) -> tuple[PythonFile, Binding] | None:
        module, _, attribute = name.rpartition(".")
        if not module or hops > _HOPS:
            return None
        file = self.module(module)
        if file is None:
            return None
        bindings = file.names.get(attribute, [])
        if not bindings:
            target = self._from_star(file, attribute, hops, builtin=False)
            return self._definition(target, hops + 1) if target is not None and target != name else None
        if len(bindings) > 1:
            targets = {binding.target for binding in bindings}
            if len(targets) > 1 or None in targets:
                return None
        binding = bindings[0]
        if binding.kind == "import":
            return self._definition(binding.target, hops + 1) if binding.target and binding.target != name else None
        if binding.kind == "variable" and isinstance(binding.value, (ast.Name, ast.Attribute)):
            alias = self.qualified(file, binding.value)
            if alias is not None and alias != name:
                return self._definition(alias, hops + 1)
        return file, binding

    def class_of(self, file: PythonFile, node: ast.AST) -> ClassModel | None:
        """Return the class of the tree that an expression names."""
        name = self.qualified(file, node.value if isinstance(node, ast.Subscript) else node)
        return self.class_named(name) if name is not None else None

    def class_named(self, name: str) -> ClassModel | None:
        """Return the class of the tree of a dotted name."""
        found = self.definition(name)
        if found is None or found[1].kind != "class":
            return None
        return next((cls for cls in found[0].classes if cls.node is found[1].node), None)

    def function_named(self, name: str) -> FunctionModel | None:
        """Return the function of the tree of a dotted name, ``module.Class.method`` included."""
        found = self.definition(name)
        if found is not None:
            return next((f for f in found[0].functions if f.node is found[1].node), None)
        owner, _, method = name.rpartition(".")
        cls = self.class_named(owner) if owner else None
        return cls.method(method) if cls is not None else None

    def changed_names(self, file: PythonFile) -> frozenset[str]:
        """Return names whose value the file changes in place (``x[k] = v``, ``x.append(…)``)."""
        if file not in self._changed:
            self._changed[file] = frozenset(_changed(file))
        return self._changed[file]

    def _from_star(self, file: PythonFile, name: str, hops: int, builtin: bool = True) -> str | None:
        file.names  # noqa: B018  collects the star imports
        outside = False
        for module, _ in file.stars:
            other = self.module(module)
            if other is None:
                outside = True
            elif other is not file and hops <= _HOPS:
                if name in other.names:
                    return f"{module}.{name}"
                nested = self._from_star(other, name, hops + 1, builtin=False)
                if nested is not None:
                    return nested
        return name if builtin and not outside and name in _BUILTINS else None


def _changed(file: PythonFile) -> Iterable[str]:
    for subscript in file.index.nodes(ast.Subscript):
        if isinstance(subscript.ctx, (ast.Store, ast.Del)) and isinstance(subscript.value, ast.Name):
            yield subscript.value.id
    for call in file.index.nodes(ast.Call):
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr in _CHANGING and isinstance(function.value, ast.Name):
            yield function.value.id
    for augmented in file.index.nodes(ast.AugAssign):
        if isinstance(augmented.target, ast.Name):
            yield augmented.target.id


MOST = 30_000
_UNREAD = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr, ast.Slice, ast.Lambda, ast.Await)
_CONTAINERS = frozenset({"tuple", "list", "set", "frozenset", "dict"})


def known(value: object) -> bool:
    """Whether a value is known to its last element."""
    if isinstance(value, Unknown):
        return False
    if isinstance(value, dict):
        return all(known(key) and known(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(known(item) for item in value)
    return True


def evaluate(file: PythonFile, node: ast.expr) -> Any:
    """Return the value of an expression.

    Literals, containers (with `UNKNOWN` elements where only those are unknown), operators, f-strings, names with one
    assignment in their scope, constants of other modules of the tree, class attributes, ``tuple(…)`` and the like.
    """
    if isinstance(node, ast.Constant):
        return node.value
    try:
        value = _Text().run.evaluate(node, _frame(file))
    except (TooLargeError, UndecidedError, RecursionError):
        return UNKNOWN
    return UNKNOWN if isinstance(value, Unknown) else value


def _frame(file: PythonFile) -> Frame:
    return Frame(file)  # type: ignore[arg-type]  # names are looked up in the file's own scopes


def _named(run: Interpreter, node: ast.Name | ast.Attribute, frame: Frame) -> Any:
    file: Any = frame.module
    project = file.project
    if isinstance(node, ast.Name):
        bindings = file.scopes.lookup(node.id, node)
        if len(bindings) == 1 and bindings[0].kind == "variable" and bindings[0].value is not None:
            if node.id in project.changed_names(file):
                return UNKNOWN
            return run.evaluate(bindings[0].value, frame)
        if bindings and bindings[0].kind != "import":
            return UNKNOWN
    elif isinstance(node.value, ast.Name):
        owner = file.function_around(node)
        if owner is not None and owner.cls is not None and node.value.id == owner.bound:
            if owner.cls.instance_attributes(node.attr):
                return UNKNOWN
            return _class_value(run, owner.cls, node.attr)
        cls = project.class_of(file, node.value)
        if cls is not None:
            return _class_value(run, cls, node.attr)
    name = project.qualified(file, node)
    found = project.definition(name) if name is not None else None
    if found is None:
        return UNKNOWN
    other, binding = found
    if binding.kind != "variable" or binding.value is None:
        return UNKNOWN
    # The container may change after its definition.
    if any(name in project.changed_names(other) for name, bound in other.names.items() if binding in bound):
        return UNKNOWN
    return run.evaluate(binding.value, _frame(other))


def _class_value(run: Interpreter, cls: ClassModel, name: str) -> Any:
    attribute = cls.attribute(name)
    if attribute is None or attribute.value is None:
        return UNKNOWN
    return run.evaluate(attribute.value, _frame(attribute.file))


def _called(run: Interpreter, node: ast.Call, frame: Frame) -> Any:
    file: Any = frame.module
    name = file.qualified(node.func)
    if name not in _CONTAINERS:
        return UNKNOWN
    return run.domain.call(External(f"builtins.{name}"), *run.arguments(node, frame), None)


def _not_read(run: Interpreter, node: ast.expr, frame: Frame) -> Any:
    return UNKNOWN


class _Text(Plain):
    """Python values, with names resolved by their bindings; nothing is executed."""

    handlers: Mapping[type[ast.AST], Handler] = {
        ast.Name: _named,
        ast.Attribute: _named,
        ast.Call: _called,
        **dict.fromkeys(_UNREAD, _not_read),
    }

    def __init__(self) -> None:
        super().__init__(ModuleGraph(None), Budget(MOST, TooLargeError))
