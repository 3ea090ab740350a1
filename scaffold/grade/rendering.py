"""Rendering of a partial package: validation of its spec, and the text of the ported denoiser."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.grade import COMPLETE, PARTIAL, UNPROVEN
from scaffold.grade.decide import port_of
from scaffold.grade.launch_values import RULES
from scaffold.grade.noise_levels import KINDS
from scaffold.grade.origin import origin_of
from scaffold.grade.scheduler_module import port_scheduler
from scaffold.inspect import EDIT, inspect_pipeline
from scaffold.spec.ranges import require_ranges
from scaffold.spec.validate import is_date

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaffold.port import Port
    from scaffold.spec import IntegrationSpec


# Expressions a spec may bring into a rendered package: only arithmetic over a few names.

NAMES = frozenset({"num_inference_steps", "latent_size", "model_path", "scheduler", "step", "np", "torch", "math"})
CALLS = frozenset({"setting", "max", "min", "round", "abs"})
ATTRIBUTES = frozenset(
    {"linspace", "sqrt", "exp", "log", "cos", "sin", "flip", "pi", "float32", "float64", "config", "get", "sigmas",
     "timesteps", "cat", "concatenate", "append", "zeros"}
)  # fmt: skip
PREDICTED = frozenset({"conditional", "unconditional"})
_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Call, ast.keyword, ast.Subscript, ast.Slice,
    ast.List, ast.Load,
)  # fmt: skip


def is_plain(text: object) -> bool:
    """Whether a text is an expression that only computes numbers from names in the rendered code."""
    return _holds_only(text, _allowed)


def is_guidance(text: object, settings: set[object]) -> bool:
    """Whether a text only combines predictions, with norms and with settings of these names."""
    return _holds_only(text, lambda node: _combines(node, settings))


def _holds_only(text: object, allowed: Callable[[ast.AST], bool]) -> bool:
    if not isinstance(text, str):
        return False
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(allowed(node) for node in ast.walk(tree))


def _combines(node: ast.AST, settings: set[object]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in PREDICTED | {"guidance", "torch", "abs", "tuple", "range", "len"}
    if isinstance(node, ast.Attribute):
        return node.attr in {"lerp", "linalg", "vector_norm", "std", "ndim"}
    if isinstance(node, ast.Subscript):
        if not (isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant)):
            return False
        return isinstance(node.slice.value, int) if node.value.id == "unconditional" else node.slice.value in settings
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int | float | str)
    return isinstance(node, (*_NODES, ast.IfExp, ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.Tuple))


def _allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in NAMES | CALLS
    if isinstance(node, ast.Attribute):
        return node.attr in ATTRIBUTES
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int | float | str | None)
    return isinstance(node, _NODES)


_STRINGS = ("upstream.module", "upstream.class", "names.module_class", "names.architecture")
_ENTRY = ("key", "what", "at", "where", "message")
_NEED = ("key", "what", "at")


def validate_ported(spec: IntegrationSpec, source: str = "the spec") -> None:
    """Check the values that decide what is rendered.

    Raises:
        ScaffoldError: names the key and what it may be.
    """

    def require(key: str, fits: bool, wanted: str) -> None:
        if not fits:
            raise ScaffoldError(f"{source}: {key} is {spec.value(key)!r}", hint=f"it must be {wanted}")

    for key in _STRINGS:
        value = spec.value(key)
        require(key, isinstance(value, str) and all(part.isidentifier() for part in value.split(".")), "a name")
    grades = (COMPLETE, UNPROVEN, PARTIAL)
    require("grade.value", spec.value("grade.value") in grades, f"one of {', '.join(grades)}")
    missing = spec.value("grade.missing")
    entries = isinstance(missing, list) and all(
        isinstance(entry, dict) and set(entry) == set(_ENTRY) for entry in missing
    )
    require("grade.missing", entries, f"a list of tables with {', '.join(_ENTRY)}")
    needs = spec.value("grade.needs")
    entries = needs is None or (
        isinstance(needs, list) and all(isinstance(entry, dict) and set(entry) == set(_NEED) for entry in needs)
    )
    require("grade.needs", entries, f"a list of tables with {', '.join(_NEED)}, or absent")
    refuses = spec.value("grade.refuses")
    require("grade.refuses", refuses is None or isinstance(refuses, str), "a line, or absent")
    left_out = spec.value("port.left_out")
    texts = left_out is None or (isinstance(left_out, list) and all(isinstance(line, str) for line in left_out))
    require("port.left_out", texts, "a list of lines, or absent")
    require("prediction.sign", spec.value("prediction.sign") in (1, -1, None), "1, -1 or absent")
    established = spec.value("guidance.established")
    kind, expression = spec.value("guidance.kind"), spec.value("guidance.expression")
    known = kind in ("none", "packed") or expression is not None
    require(
        "guidance.established", isinstance(established, bool) and (known or not established), "false for this formula"
    )
    names = set(spec.value("guidance.defaults") or {})
    combines = expression is None or is_guidance(expression, names)
    fewest, most = spec.value("guidance.fewest"), spec.value("guidance.unconditional")
    counts = isinstance(fewest, int) and isinstance(most, int) and 1 <= fewest <= most
    require("guidance.fewest", fewest is None or counts, "a number from 1 to guidance.unconditional, or absent")
    require("upstream.task", spec.value("upstream.task") in (None, EDIT), f"{EDIT!r} or absent")
    require("guidance.expression", combines, "arithmetic over conditional, unconditional and guidance's entries")
    for entry in spec.value("guidance.others") or []:
        words = [entry.get("name"), *(entry.get("others") or [])] if isinstance(entry, dict) else [None]
        require("guidance.others", all(str(word).isidentifier() for word in words), "tables with name and others")
    attribute, builder = spec.value("loading.attribute"), spec.value("port.builder")
    require("loading.attribute", not attribute or str(attribute).isidentifier(), "a name or empty")
    require("port.builder", builder is None or str(builder).isidentifier(), "a name or absent")
    loads, own = spec.value("loading.established"), spec.value("port.own")
    held = bool(attribute) or own is True
    require("loading.established", loads in (False, None) or bool(held and builder), "false without a builder")
    for key in ("port.output", "port.first", "port.tokenizer"):
        value = spec.value(key)
        named = value is None or all(part.isidentifier() for part in str(value).split("."))
        require(key, named, "a name or absent")
    for key, fits, wanted in RULES:
        require(key, fits(spec.value(key)), wanted)
    _require_levels(spec, require)
    require_ranges(spec, source)
    require("docs.last_updated", is_date(spec.value("docs.last_updated")), "a date MM/DD/YYYY")


def _require_levels(spec: IntegrationSpec, require: Callable[[str, bool, str], None]) -> None:
    """Check the section of the noise levels: its expressions become source text."""
    require("levels.kind", spec.value("levels.kind") in (*KINDS, None), f"one of {', '.join(KINDS)}, or absent")
    for key in ("text", "levels"):
        value = spec.value(f"levels.{key}")
        require(f"levels.{key}", value is None or is_plain(value), "arithmetic over the names of common.py")
    for key in ("arguments", "assigned", "configured", "asked"):
        entries = spec.value(f"levels.{key}") or []
        fits = isinstance(entries, list) and all(
            isinstance(e, dict)
            and set(e) == {"name", "value"}
            and str(e["name"]).isidentifier()
            and is_plain(e["value"])
            for e in entries
        )
        require(f"levels.{key}", fits, "a list of tables with name and value, an expression")


def ported_text(spec: IntegrationSpec, port: Port | None) -> str | None:
    """Return the module of the ported denoiser; None if the spec has none.

    Raises:
        ScaffoldError: it has to be ported again, and the recorded version of vllm-omni cannot be had.
    """
    if not spec.value("port.entry"):
        return None
    if port is None:
        port = ported_again(spec)
    return port.source


def scheduler_text(spec: IntegrationSpec, port: Port | None) -> str | None:
    """Return the module of the ported scheduler class, pruned to its schedule; None if the spec has none.

    Raises:
        ScaffoldError: it has to be ported again, and the recorded version of vllm-omni cannot be had.
    """
    module, name = spec.value("levels.module"), spec.value("levels.class")
    if spec.value("levels.source") != "source" or not isinstance(module, str) or not isinstance(name, str):
        return None
    if port is not None and port.scheduler is not None:
        return port.scheduler
    return port_scheduler(origin_of(spec), module, name)


def ported_again(spec: IntegrationSpec) -> Port:
    """Return the denoiser of a ported package, ported again from the recorded version.

    Raises:
        ScaffoldError: that version is not available, or has no such denoiser.
    """
    source = origin_of(spec)
    pipeline = f"{spec.value('upstream.module')}:{spec.value('upstream.class')}"
    report = inspect_pipeline(source, pipeline, task=spec.value("upstream.task"))
    port, _ = port_of(source, report, spec.value("deploy.additional_config"))
    if port is None:
        raise ScaffoldError(f"vllm-omni {source.label} has no denoiser that the spec names")
    return port
