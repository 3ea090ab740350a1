"""The text of a Python file of the tree: syntax tree, names of its scopes, comments, places. Nothing is executed."""

from __future__ import annotations

import ast
import codecs
import io
import tokenize
import warnings
from collections.abc import Iterator
from functools import cached_property, lru_cache

from scaffold.check.finding import Span
from scaffold.check.model.source import SourceFile, UndecodableError
from scaffold.files.parsing import TooManyPartsError, parse
from scaffold.limits.bounded import memory
from scaffold.source.bindings import Binding, Index, LexicalScopes

LARGEST = 20_000_000  # bytes; nobody writes a larger source
ENCODINGS = ("utf-8", "utf-8-sig", "ascii", "iso8859-1")


class UnparsableError(Exception):
    """A Python file cannot be parsed; ``kind`` is ``syntax`` or ``deep``."""

    def __init__(self, kind: str, reason: str, line: int, column: int) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.line, self.column = kind, reason, line, column


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


class PythonText(SourceFile):
    """The text of a Python file: its syntax tree, names, comments and places."""

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
    def changed_names(self) -> frozenset[str]:
        """Names whose value the file changes in place (``x[k] = v``, ``x.append(…)``)."""
        return frozenset(_changed(self.index))

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


def _changed(index: Index) -> Iterator[str]:
    for subscript in index.nodes(ast.Subscript):
        if isinstance(subscript.ctx, (ast.Store, ast.Del)) and isinstance(subscript.value, ast.Name):
            yield subscript.value.id
    for call in index.nodes(ast.Call):
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr in _CHANGING and isinstance(function.value, ast.Name):
            yield function.value.id
    for augmented in index.nodes(ast.AugAssign):
        if isinstance(augmented.target, ast.Name):
            yield augmented.target.id


# Fixes are applied in rounds, each of which changes a file or two of the tree.
@lru_cache(maxsize=64)
def _tree(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes are for the linter of the repository
        return parse(text)


@lru_cache(maxsize=64)
def _index(tree: ast.Module) -> Index:
    return Index(tree)
