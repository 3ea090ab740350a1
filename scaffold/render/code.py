"""Jinja filters for values that are code: each passes one shape of Python and refuses every other."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

SHOWN = 60
IMPORTABLE = frozenset(
    {"PIL", "__future__", "collections", "contextlib", "copy", "dataclasses", "diffusers", "einops", "enum",
     "functools", "inspect", "itertools", "json", "logging", "math", "numbers", "numpy", "random", "re", "time",
     "torch", "torchvision", "tqdm", "transformers", "typing", "verl_omni", "vllm", "vllm_omni", "warnings"}
)  # fmt: skip
"""Packages that code in a spec, copied from vllm-omni, may import."""


def expression(value: Any) -> str:
    """Return ``value`` unchanged when it is one Python expression on one line.

    What it may compute is for the spec's validation to say; here it cannot end and go on as something else.
    """
    text = _text(value, "an expression")
    tree = _parsed(text, "eval", "an expression")
    if "\n" in text or "#" in text or any(isinstance(node, ast.NamedExpr | ast.Lambda) for node in ast.walk(tree)):
        raise ValueError(f"{_shown(text)} is not a plain expression")
    return text


def function(value: Any) -> str:
    """Return ``value`` unchanged when it is one function and nothing beside it."""
    return _statements(value, (ast.FunctionDef, ast.AsyncFunctionDef), "one function")


def import_line(value: Any, beside: str = "") -> str:
    """Return ``value`` unchanged when it is one import, perhaps of the package that the module ``beside`` lies in."""
    return _statements(value, (ast.Import, ast.ImportFrom), "one import", beside.partition(".")[0])


def module(value: Any) -> str:
    """Return ``value`` unchanged when it is the text of a Python module; it is the tool's own, never the spec's."""
    text = _text(value, "a module")
    _parsed(text, "exec", "a module")
    return text


def _statements(value: Any, kinds: tuple[type[ast.stmt], ...], wanted: str, beside: str = "") -> str:
    text = _text(value, wanted)
    tree = _parsed(textwrap.dedent(text), "exec", wanted)
    body = getattr(tree, "body", [])
    if len(body) != 1 or not isinstance(body[0], kinds):
        raise ValueError(f"{_shown(text)} is not {wanted}")
    for node in ast.walk(tree):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name.partition(".")[0] not in {*IMPORTABLE, beside}:
                raise ValueError(f"{_shown(text)} is not {wanted} that may import {name}")
    return text


def _text(value: Any, wanted: str) -> str:
    from jinja2 import Undefined

    if isinstance(value, Undefined):
        str(value)  # StrictUndefined raises here and names the variable
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} is not {wanted}")
    return value


def _parsed(text: str, mode: str, wanted: str) -> ast.AST:
    try:
        return ast.parse(text, mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{_shown(text)} is not {wanted}") from None


def _shown(text: str) -> str:
    shown = repr(text[: SHOWN + 1])
    return shown if len(text) <= SHOWN else shown[:SHOWN] + "…"
