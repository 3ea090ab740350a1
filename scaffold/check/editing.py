"""Edits for fixes, with libcst: what is not edited stays as it was, byte for byte.

Each function takes a file and nodes of its ``ast`` tree and returns the file's whole new text. Rules import this module
where they fix, for libcst is slow to import.
"""

from __future__ import annotations

import ast
from typing import Any

import libcst as cst

from scaffold.check.model.python import PythonFile


def replace_expression(file: PythonFile, node: ast.expr, code: str) -> str:
    """Put the expression ``code`` in the place of ``node``; brackets around it stay."""
    module, old = _located(file, node, cst.BaseExpression)
    return _replaced(module, old, _bracketed(cst.parse_expression(code), old))


def set_argument(file: PythonFile, call: ast.Call, name: str, code: str) -> str:
    """Give a call the keyword argument ``name=code``, in the place of the one it has or at the end."""
    module, old = _located(file, call, cst.Call)
    assert isinstance(old, cst.Call)
    value = cst.parse_expression(code)
    args = list(old.args)
    for at, arg in enumerate(args):
        if arg.keyword is not None and arg.keyword.value == name:
            args[at] = arg.with_changes(value=value)
            break
    else:
        new = cst.ensure_type(cst.parse_expression(f"f({name}={code})"), cst.Call).args[0]
        if args and isinstance(args[-1].comma, cst.Comma):
            # A trailing comma: the new argument takes the layout of the one before it.
            new = new.with_changes(comma=args[-1].comma, whitespace_after_arg=args[-1].whitespace_after_arg)
            before = args[-2].comma if len(args) > 1 and isinstance(args[-2].comma, cst.Comma) else _spaced()
            args[-1] = args[-1].with_changes(comma=before if len(args) > 1 else args[-1].comma)
        elif args:
            new = new.with_changes(whitespace_after_arg=args[-1].whitespace_after_arg)
            args[-1] = args[-1].with_changes(comma=_spaced(), whitespace_after_arg=cst.SimpleWhitespace(""))
        args.append(new)
    return _replaced(module, old, old.with_changes(args=args))


def set_class_attribute(file: PythonFile, node: ast.ClassDef, name: str, code: str) -> str:
    """Assign ``name = code`` in a class body: where it is assigned already, else before the first method."""
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        value = getattr(statement, "value", None)
        if value is not None and any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return replace_expression(file, value, code)
    module, old = _located(file, node, cst.ClassDef)
    assert isinstance(old, cst.ClassDef)
    body = list(old.body.body)
    at = 0
    while at < len(body) and isinstance(body[at], cst.SimpleStatementLine):
        at += 1
    line: Any = cst.parse_statement(f"{name} = {code}\n", config=module.config_for_parsing)
    if at == 0 and body:
        body[0] = body[0].with_changes(leading_lines=[cst.EmptyLine(indent=False), *_without_blank(body[0])])
    elif at == 1 and _is_docstring(body[0]):
        line = line.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    body.insert(at, line)
    return _replaced(module, old, old.with_changes(body=old.body.with_changes(body=body)))


def add_import(text: str, module: str, name: str) -> str:
    """Add ``from module import name`` where it is missing, beside an import of that module if there is one."""
    from libcst.codemod import CodemodContext
    from libcst.codemod.visitors import AddImportsVisitor

    context = CodemodContext()
    AddImportsVisitor.add_needed_import(context, module, name)
    return AddImportsVisitor(context).transform_module(cst.parse_module(text)).code


def _located(file: PythonFile, node: ast.AST, kind: Any) -> tuple[cst.Module, cst.CSTNode]:
    """Return the module and the smallest node of a kind that covers ``node``."""
    from libcst.metadata import MetadataWrapper, PositionProvider

    text = file.text.removeprefix("\ufeff")
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    lines = file.lines
    start = (node.lineno, _characters(lines, node.lineno, node.col_offset))  # type: ignore[attr-defined]
    end = (node.end_lineno, _characters(lines, node.end_lineno, node.end_col_offset))  # type: ignore[attr-defined]
    if isinstance(node, ast.Tuple) and node.elts:
        # libcst counts the brackets of a tuple to what is around it.
        kind, first, last = cst.Tuple, node.elts[0], node.elts[-1]
        start = (first.lineno, _characters(lines, first.lineno, first.col_offset))
        assert last.end_lineno is not None
        assert last.end_col_offset is not None
        end = (last.end_lineno, _characters(lines, last.end_lineno, last.end_col_offset))
    best: tuple[Any, cst.CSTNode] | None = None
    for candidate, place in wrapper.resolve(PositionProvider).items():
        if not isinstance(candidate, kind):
            continue
        begin, stop = (place.start.line, place.start.column), (place.end.line, place.end.column)
        if begin <= start and end <= stop:
            size = (stop[0] - begin[0], stop[1] - begin[1] if stop[0] == begin[0] else stop[1])
            if best is None or size < best[0]:
                best = (size, candidate)
    assert best is not None, f"{file.path}: no node at {start}"
    return wrapper.module, best[1]


def _characters(lines: list[str], line: int, offset: int) -> int:
    return len(lines[line - 1].encode()[:offset].decode(errors="replace"))


def _replaced(module: cst.Module, old: cst.CSTNode, new: cst.CSTNode) -> str:
    changed = module.deep_replace(old, new)
    assert isinstance(changed, cst.Module)
    return changed.code


def _bracketed(new: Any, old: Any) -> Any:
    if getattr(old, "lpar", None) and not getattr(new, "lpar", None):
        return new.with_changes(lpar=old.lpar, rpar=old.rpar)
    return new


def _spaced() -> cst.Comma:
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _is_docstring(statement: Any) -> bool:
    inner = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    return isinstance(inner, cst.Expr) and isinstance(inner.value, (cst.SimpleString, cst.ConcatenatedString))


def _without_blank(statement: Any) -> list[Any]:
    lines = list(statement.leading_lines)
    while lines and lines[0].comment is None:
        lines.pop(0)
    return lines
