"""Padding of the prompts changes nothing."""

from __future__ import annotations

from typing import Any

from scaffold.verify.measured import Measured
from scaffold.verify.subject.alone import measure_alone
from scaffold.verify.subject.subject import PROMPTS

ID = "padding-invariance"
TITLE = "in a batch of ragged prompts each sample gets the velocity, mean and log-prob it gets alone"
PITFALLS = (1, 8, 9, 14)


def run(subject: Any) -> Measured:
    """Compare a batch of prompts of 3, 7 and 5 tokens with its samples one by one, in several orders."""
    return measure_alone(subject, (PROMPTS, PROMPTS[::-1], PROMPTS[1:] + PROMPTS[:1]), (0,))
