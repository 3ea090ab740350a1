"""Lines that became too long because a name in them is: docstrings and comments are wrapped, strings taken apart.

What a program means stays: a string is the same in two pieces, and nobody reads white space of a docstring.
"""

from __future__ import annotations

import ast
import re
import textwrap

_STRING = re.compile(r'(f?)"((?:[^"\\]|\\.)*)"(,?)')
_COMMENT = re.compile(r"#:? ?")
# These mean something as they stand.
_PRAGMA = re.compile(r"# ?(noqa\b|(ruff|type|mypy|fmt|pragma|omni-scaffold):)", re.IGNORECASE)
_ENTRY = re.compile(r"\*{0,2}\w+(, \w+)*: |- |Returns |Raises ")


def break_long_lines(text: str, width: int) -> str:
    """Return a module's text with those lines broken that can be.

    Args:
        text: formatted module.
        width: most characters of a line.
    """
    lines = text.split("\n")
    if all(len(line) <= width for line in lines):
        return text
    documented = _docstring_rows(text)
    made: list[str] = []
    for row, line in enumerate(lines, start=1):
        made += [line] if len(line) <= width else _broken(line, width, row in documented)
    broken = "\n".join(made)
    return broken if _mean_the_same(broken, text) else text


def _docstring_rows(text: str) -> set[int]:
    """Rows of docstrings that do not end there: a last row has quotes behind the text."""
    rows: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                rows |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return rows


def _broken(line: str, width: int, documented: bool) -> list[str]:
    body = line.lstrip()
    indent = line[: len(line) - len(body)]
    if documented:
        return _wrapped_docstring(body, indent, width)
    if _PRAGMA.match(body):
        return [line]
    if body.startswith("#"):
        mark = _COMMENT.match(body)
        assert mark is not None
        return _wrap(body[mark.end() :], f"{indent}{mark[0]}", f"{indent}{mark[0]}", width)
    string = _STRING.fullmatch(body)
    return [line] if string is None else _pieces(string, indent, width)


def _wrapped_docstring(body: str, indent: str, width: int) -> list[str]:
    """Wrap one row; behind a text of more rows than one the quotes get a row of their own."""
    closing = body.endswith('"""') and body != '"""'
    if closing:
        body, width = body[:-3].rstrip(), width - 3
    further = indent + ("    " if _ENTRY.match(body) and not body.startswith('"""') else "")
    return _wrap(body, indent, further, width) + ([f'{indent}"""'] if closing else [])


def _wrap(text: str, first: str, further: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )


def _pieces(string: re.Match[str], indent: str, width: int) -> list[str]:
    """Take a string apart at spaces, for an f-string at those outside of its braces."""
    prefix, body, comma = string.groups()
    room = width - len(indent) - len(prefix) - 3
    pieces, rest = [], body
    while len(rest) > room:
        cut = max((i + 1 for i, c in enumerate(rest[:room]) if c == " " and _outside(rest[:i], prefix)), default=0)
        if not cut:
            break
        pieces.append(rest[:cut])
        rest = rest[cut:]
    pieces.append(rest)
    return [f'{indent}{prefix if "{" in piece else ""}"{piece}"' for piece in pieces[:-1]] + [
        f'{indent}{prefix if "{" in pieces[-1] else ""}"{pieces[-1]}"{comma}'
    ]


def _outside(text: str, prefix: str) -> bool:
    plain = text.replace("{{", "").replace("}}", "")
    return not prefix or plain.count("{") == plain.count("}")


def _mean_the_same(text: str, other: str) -> bool:
    """Whether two modules differ in nothing but the layout of docstrings; an unreadable one does."""
    try:
        trees = ast.parse(text), ast.parse(other)
    except (SyntaxError, ValueError):
        return False
    return _same(trees[0].body, trees[1].body, text.split("\n"), other.split("\n"))


def _same(body: list[ast.stmt], other: list[ast.stmt], lines: list[str], other_lines: list[str]) -> bool:
    """The same of statements; of those that are written alike nothing more is asked, because a dump is slow."""
    if len(body) != len(other):
        return False
    for one, two in zip(body, other, strict=True):
        if _rows(one, lines) == _rows(two, other_lines):
            continue
        if isinstance(one, ast.ClassDef) and isinstance(two, ast.ClassDef):
            if not _same(one.body, two.body, lines, other_lines):
                return False
            one.body, two.body = [], []
        if _dumped(one) != _dumped(two):
            return False
    return True


def _rows(node: ast.stmt, lines: list[str]) -> list[str]:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    return lines[first - 1 : node.end_lineno]


def _dumped(tree: ast.stmt) -> str:
    """A statement without the layout of its docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.value = " ".join(node.value.value.split())
    return ast.dump(tree)
