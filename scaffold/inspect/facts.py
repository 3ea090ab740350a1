"""Answers and where they come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from scaffold.source.values import Evidence

__all__ = ["UNKNOWN", "Confidence", "Evidence", "Fact", "fact"]

Confidence = Literal["certain", "likely", "unknown"]


@dataclass(frozen=True)
class Fact:
    """One answer: a JSON-like value, the places that establish it, and how sure it is."""

    value: Any
    evidence: tuple[Evidence, ...] = ()
    confidence: Confidence = "certain"


UNKNOWN = Fact(None, (), "unknown")


def fact(value: Any, evidence: Iterable[Evidence | None] = (), confidence: Confidence = "certain") -> Fact:
    """Make a fact; places are put in order of use, each once."""
    places = tuple(dict.fromkeys(e for e in evidence if e is not None))
    return Fact(value, places, confidence)
