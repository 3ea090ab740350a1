"""Answers and where they come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Confidence = Literal["certain", "likely", "unknown"]


class Evidence(NamedTuple):
    """A place in the upstream version read; ``file`` is relative to the folder that holds ``vllm_omni/``."""

    file: str
    line: int


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
