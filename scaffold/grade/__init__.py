"""How much of an integration can be had: complete, unproven, partial, refused; and what a person must still write."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.grade.decide import Graded, compose, specify
    from scaffold.grade.missing import Missing

__all__ = [
    "COMPLETE",
    "PARTIAL",
    "REFUSED",
    "UNPROVEN",
    "Graded",
    "Missing",
    "compose",
    "grade_of",
    "is_ported",
    "specify",
]

COMPLETE, UNPROVEN, PARTIAL, REFUSED = "complete", "unproven", "partial", "refused"


def __getattr__(name: str) -> object:
    """Import on first use: a port needs libcst."""
    import importlib

    modules = {"Graded": "decide", "compose": "decide", "specify": "decide", "Missing": "missing"}
    if name in modules:
        return getattr(importlib.import_module(f"{__name__}.{modules[name]}"), name)
    raise AttributeError(name)


def grade_of(spec: object) -> str:
    """Return the grade of a spec; one without a grade was rendered whole."""
    value = spec.value("grade.value")  # type: ignore[attr-defined]
    return value if isinstance(value, str) else COMPLETE


def is_ported(spec: object) -> bool:
    """Whether the package's denoiser is ported from vllm-omni, be the package complete or not."""
    return "port" in spec.sections  # type: ignore[attr-defined]
