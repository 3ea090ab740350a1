"""Grades an integration (complete, unproven, partial, refused) and lists what a person must still write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaffold.limits.on_demand import on_demand

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


# Imported here: porting needs libcst.
__getattr__ = on_demand(__name__, {"decide": "Graded compose specify", "missing": "Missing"})


def grade_of(spec: object) -> str:
    """Return the grade of a spec; a spec without a grade is complete."""
    value = spec.value("grade.value")  # type: ignore[attr-defined]
    return value if isinstance(value, str) else COMPLETE


def is_ported(spec: object) -> bool:
    """Whether the package's denoiser is ported from vllm-omni, whatever its grade."""
    return "port" in spec.sections  # type: ignore[attr-defined]
