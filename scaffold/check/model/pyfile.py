"""A Python file of the tree: parsed once, with its functions, classes and the meaning of its names."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from scaffold.check.finding import Span
from scaffold.check.model.index import Index
from scaffold.check.model.scopes import Binding, Scopes
from scaffold.check.model.source import SourceFile, UndecodableError
from scaffold.files.parsing import TooManyPartsError, parse
from scaffold.limits.bounded import memory

if TYPE_CHECKING:
    from scaffold.check.model.classes import ClassModel
    from scaffold.check.model.functions import FunctionModel
    from scaffold.check.model.patch import PatchedFile
    from scaffold.check.model.project import Project

LARGEST = 20_000_000  # bytes; more is not a source that a person wrote


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

    def __init__(self, path: str, data: bytes, project: Project, patched: PatchedFile | None = None) -> None:
        super().__init__(path, data, patched)
        self.project = project

    @cached_property
    def encoding(self) -> str:
        """What a byte-order mark or a coding comment says, UTF-8 otherwise."""
        try:
            return tokenize.detect_encoding(io.BytesIO(self.data).readline)[0]
        except SyntaxError as error:
            raise UndecodableError(str(error.msg)) from error

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
    def scopes(self) -> Scopes:
        """The meaning of names."""
        return Scopes(self.index, self.module, self.is_package)

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
        from scaffold.check.model.classes import ClassModel

        return [
            ClassModel(self, binding.node)
            for bindings in self.names.values()
            for binding in bindings
            if isinstance(binding.node, ast.ClassDef)
        ]

    @cached_property
    def functions(self) -> list[FunctionModel]:
        """Functions at module level."""
        from scaffold.check.model.functions import FunctionModel

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
        """Return the absolute dotted name of ``a.b.c`` as imports make it; see `Project.qualified`."""
        return self.project.qualified(self, node)

    def value(self, node: ast.expr) -> object:
        """Return the value of an expression, or `UNKNOWN`; see `scaffold.check.model.values`."""
        from scaffold.check.model.values import evaluate

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
        warnings.simplefilter("ignore")  # invalid escapes are the linter's of the repository
        return parse(text)


@lru_cache(maxsize=64)
def _index(tree: ast.Module) -> Index:
    return Index(tree)
