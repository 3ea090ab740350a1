"""Reads the size that an operation requires from torch's error message."""

from __future__ import annotations

import re

# How torch says that a size is another than a layer has: an operation, a linear layer, a norm; and how a pipeline does
# that looks at a size itself.
_MISMATCHES = (
    r"tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)",
    r"shapes cannot be multiplied \(\d+x(?P<a>\d+) and (?P<b>\d+)x",
    r"normalized_shape=\[(?P<b>\d+)\].*input of size ?\[(?:\d+, )*(?P<a>\d+)\]",
    r"expected (?P<b>\d+),? (?:but )?got (?P<a>\d+)",
)
# The message for a missing item.
_BEYOND = re.compile(r"index (?P<index>\d+) is out of bounds for dimension \d+ with size (?P<size>\d+)")


def wanted(error: Exception, size: int) -> int | None:
    """Return the size an operation requires instead of the given one; None if the error is about something else."""
    beyond = _BEYOND.search(str(error))
    if beyond is not None and int(beyond["size"]) == size:
        return int(beyond["index"]) + 1
    for pattern in _MISMATCHES:
        found = re.search(pattern, str(error))
        pair = {int(value) for value in found.groups()} if found else set()
        if size in pair and len(pair) == 2:
            return (pair - {size}).pop()
    return None
