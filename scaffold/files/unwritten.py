"""Places that are still to be written: errors that `new` puts where the source of a pipeline does not say enough."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

_MESSAGE = re.compile(r"(?s)(?P<what>.+): port (?P<place>\S+\.py:\d+) of vllm-omni \S+")


class Unwritten(NamedTuple):
    """One place.

    Attributes:
        what: what is to be written.
        place: file and line of the pipeline that do it.
    """

    what: str
    place: str


def unwritten(node: ast.Raise) -> Unwritten | None:
    """Return what is to be written where an error is raised; None where it is an error like any other."""
    if not isinstance(node.exc, ast.Call) or not node.exc.args or ast.unparse(node.exc.func) != "NotImplementedError":
        return None
    text = node.exc.args[0]
    found = _MESSAGE.fullmatch(text.value) if isinstance(text, ast.Constant) and isinstance(text.value, str) else None
    return Unwritten(found["what"], found["place"]) if found is not None else None
