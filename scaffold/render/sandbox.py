"""A template can compute with the values of a spec and reach nothing else: no object of Python's, no end of memory.

The tool's own templates and those of a team, or of a stranger's checkout, run in the same environment. What may be
called and looked up is listed here; whatever is not listed is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import BuiltinMethodType
from typing import Any

from jinja2 import Environment, Undefined
from jinja2.compiler import CodeGenerator, Frame
from jinja2.environment import TemplateModule
from jinja2.nodes import Dict, EvalContext, List, Tuple
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, TemplateReference
from jinja2.sandbox import SandboxedEnvironment, safe_range
from jinja2.utils import Namespace

from scaffold import bounded
from scaffold.operators import ARITHMETIC

LARGEST = 8_000_000
"""Characters of the longest text that a template makes."""
WIDEST = 200
"""Characters that a line may be indented by."""
# What Jinja brings along; `scaffold.render.filters` has the tool's own.
FILTERS = (
    *("abs", "default", "first", "float", "indent", "join", "last", "length", "list", "lower", "map", "reject"),
    *("rejectattr", "replace", "round", "select", "selectattr", "sort", "tojson", "trim", "unique", "upper"),
)
METHODS: Mapping[type, tuple[str, ...]] = {
    str: (
        *("count", "endswith", "index", "join", "lower", "lstrip", "partition", "removeprefix", "removesuffix"),
        *("replace", "rpartition", "rsplit", "rstrip", "split", "startswith", "strip", "upper"),
    ),
    dict: ("get", "items", "keys", "setdefault", "values"),
    list: ("append", "count", "index"),
    tuple: ("count", "index"),
}
_OF_JINJA = (LoopContext, TemplateModule, TemplateReference, Namespace)
_CALLED = (Macro, BlockReference, LoopContext, Undefined)
_CONTEXTS = (Context, EvalContext, Environment)
_GLOBALS = ("range", "dict", "namespace")
_NAMES = {"+": "Add", "-": "Sub", "*": "Mult", "/": "Div", "//": "FloorDiv", "%": "Mod", "**": "Pow"}
_OPERATORS = {sign: next(kind for kind in ARITHMETIC if kind.__name__ == name) for sign, name in _NAMES.items()}


def held(value: Any) -> Any:
    """Return a value that a template made; raise ``ValueError`` where it holds more than any output needs."""
    if isinstance(value, str):
        if len(value) > LARGEST:
            raise bounded.TooLargeError("a text of the template is too long")
    else:
        bounded.size(value)
    return value


class BoundedGenerator(CodeGenerator):
    """Compiles what puts containers together so that their size is looked at."""

    def visit_List(self, node: List, frame: Frame) -> None:
        self._held(super().visit_List, node, frame)

    def visit_Dict(self, node: Dict, frame: Frame) -> None:
        self._held(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: Tuple, frame: Frame) -> None:
        if node.ctx == "load":
            self._held(super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def _held(self, visit: Callable[[Any, Frame], None], node: Any, frame: Frame) -> None:
        self.write("environment.held(")
        visit(node, frame)
        self.write(")")


class BoundedEnvironment(SandboxedEnvironment):
    """A Jinja environment in which nothing but what this module lists can be called or looked up."""

    code_generator_class = BoundedGenerator
    intercepted_binops = frozenset(_OPERATORS)
    held = staticmethod(held)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.globals = {name: self.globals[name] for name in _GLOBALS}
        limits: dict[str, Callable[..., None]] = {
            "indent": _indent,
            "replace": _replace,
            "round": _round,
            "tojson": _tojson,
        }
        self.filters = {name: _limited(self.filters[name], limits.get(name)) for name in FILTERS}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may look an attribute up: one of Jinja's, or a method that is listed."""
        if attr.startswith("_"):
            return False
        return isinstance(obj, _OF_JINJA) or attr in _methods(obj)

    def is_safe_callable(self, obj: Any) -> bool:
        """Whether a template may call this."""
        if isinstance(obj, BuiltinMethodType):
            return obj.__name__ in _methods(obj.__self__)
        if isinstance(obj, _CALLED) or obj in (safe_range, dict, Namespace):
            return True
        return isinstance(getattr(obj, "__self__", None), LoopContext)

    def call(self, context: Context, function: Any, *arguments: Any, **options: Any) -> Any:
        """Call what `is_safe_callable` allows; methods of text and containers within bounds."""
        if isinstance(function, BuiltinMethodType) and self.is_safe_callable(function):
            owner = function.__self__
            for name in ("_loop_vars", "_block_vars"):  # Jinja's own, for functions that ask for its context
                options.pop(name, None)
            result = bounded.method(owner, function.__name__, *arguments, **options)
            held(owner)
            return result
        result = super().call(context, function, *arguments, **options)
        return held(result) if isinstance(result, str | dict) else result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute within bounds."""
        return bounded.operate(_OPERATORS[operator], left, right)


def _methods(value: Any) -> tuple[str, ...]:
    return next((names for kind, names in METHODS.items() if isinstance(value, kind)), ())


def _limited(function: Callable[..., Any], limit: Callable[..., None] | None = None) -> Callable[..., Any]:
    """Return a filter that looks at what it is given before it works; Jinja's marks on the function stay."""

    @functools.wraps(function)
    def filtered(*arguments: Any, **options: Any) -> Any:
        given = arguments[1:] if arguments and isinstance(arguments[0], _CONTEXTS) else arguments
        for value in (*given, *options.values()):
            if isinstance(value, str | list | tuple | dict):
                held(value)
        if limit is not None:
            limit(*given, **options)
        return function(*arguments, **options)

    return filtered


def _indent(text: str, width: int | str = 4, *_: Any, **__: Any) -> None:
    wide = width if isinstance(width, int) else len(width)
    if wide > WIDEST:
        raise bounded.TooLargeError(f"a line is not indented by {wide}")
    _at_most(len(text) + wide * (str(text).count("\n") + 1))


def _replace(text: str, old: str, new: str, *_: Any, **__: Any) -> None:
    _at_most(len(text) + str(text).count(str(old)) * len(str(new)))


def _round(value: Any, precision: int = 0, *_: Any, **__: Any) -> None:
    _at_most(abs(precision), bounded.PLACES)


def _tojson(value: Any, indent: int | None = None) -> None:
    _at_most(indent or 0, WIDEST)


def _at_most(number: int, most: int = LARGEST) -> None:
    if number > most:
        raise bounded.TooLargeError("a value of the template is too large to work with")
