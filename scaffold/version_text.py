"""What the text of a version looks like, wherever it comes from: a record, a pin, the name of a wheel."""

from __future__ import annotations

import re

LONGEST = 100  # characters
_DIGITS = 10  # of a number, which no release reaches
_VERSION = re.compile(r"v?\d+(\.\d+)*((a|b|rc)\d+)?(\.(post|dev)\d+)*(\+[A-Za-z0-9.]+)?")


def is_version(text: str) -> bool:
    """Whether a text is the version of a release or a build, and so neither a folder nor a range of versions."""
    numbers = re.findall(r"\d+", text.partition("+")[0])
    return len(text) <= LONGEST and _VERSION.fullmatch(text) is not None and max(map(len, numbers)) < _DIGITS
