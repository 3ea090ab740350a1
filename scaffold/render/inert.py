"""Which text may enter what is rendered: what a template says, what a filter made, and plain names and numbers.

A value of a spec comes from sources that nobody has read. Written bare it could end a string and go on as code,
so a bare one passes only where it is a number or a dotted name; all else goes through a filter, or is refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import Environment, Undefined
from jinja2.compiler import CodeGenerator, Frame
from jinja2.nodes import Concat, Const, EvalContext
from jinja2.sandbox import SandboxedEnvironment

# Filters of Jinja's that put text together or cut it.
KEEPING = ("indent", "join", "lower", "replace", "trim", "upper")
_PLAIN = re.compile(r"[A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*", re.ASCII)
SHOWN = 60


class Inert(str):
    """Text that a template may write as it is."""

    __slots__ = ()


def is_inert(value: object) -> bool:
    """Tell whether a value may be written as it is: text of a template or a filter, a number, a dotted name."""
    if isinstance(value, str):
        return isinstance(value, Inert) or _PLAIN.fullmatch(value) is not None
    return value is None or isinstance(value, bool | int | float)


def require_inert(value: Any) -> Any:
    """Return a value that is written into the output; raise ``ValueError`` for one that needs a filter."""
    if isinstance(value, Undefined) or is_inert(value):
        return value
    shown = repr(value)
    shown = shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"
    raise ValueError(f"{shown} stands where only a name or a number may")


def making_inert(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter whose text is inert: it turns any value into source text."""

    @functools.wraps(function)
    def filtered(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        return Inert(result) if isinstance(result, str) else result

    return filtered


def keeping_inert(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter of Jinja's that makes text of text; from inert parts alone it makes inert text."""

    @functools.wraps(function)
    def filtered(*arguments: Any, **options: Any) -> Any:
        # A generator would be spent by the look at its parts.
        given = [list(a) if isinstance(a, Iterable) and not isinstance(a, str) else a for a in arguments]
        result = function(*given, **options)
        return Inert(result) if isinstance(result, str) and all(map(_made_of_inert, given)) else result

    return filtered


def joined(parts: Iterable[Any]) -> str:
    """Join what the operator ``~`` joins."""
    parts = list(parts)
    text = "".join(map(str, parts))
    return Inert(text) if all(map(is_inert, parts)) else text


def _made_of_inert(value: Any) -> bool:
    if isinstance(value, EvalContext | Environment):
        return True
    return all(map(is_inert, value)) if isinstance(value, list) else is_inert(value)


def _literal(value: Any) -> str:
    """Return the source of a literal, its texts inert; Jinja has folded displays of literals into one."""
    if isinstance(value, str):
        return f"environment.inert({value!r})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        inner = "".join(f"{_literal(one)}, " for one in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return repr(value)


class _Generator(CodeGenerator):
    """Compiles the literals of a template as inert text."""

    def visit_Const(self, node: Const, frame: Frame) -> None:
        self.write(_literal(node.as_const(frame.eval_ctx)))

    def visit_Concat(self, node: Concat, frame: Frame) -> None:
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


def _written(parts: Iterable[str]) -> str:
    return Inert("".join(parts))


class InertEnvironment(SandboxedEnvironment):
    """A Jinja environment that writes nothing but inert text."""

    code_generator_class = _Generator
    inert = Inert
    joined = staticmethod(joined)
    concat = staticmethod(_written)
