"""What the engine puts before the names of the checkpoint's root before the pipeline's loader sees them."""

from __future__ import annotations

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.values import Const
from scaffold.inspect.weight_sources import text_of, weight_sources

ORDER = 8
KEYS = ("detail.checkpoint.loader_prefix",)


def answers(program: Program) -> dict[str, Fact]:
    """Established where one weight source streams the root and its prefix is a text; no prefix is an empty one."""
    found = []
    for _, source in weight_sources(program):
        folder = source.kwargs.get("subfolder")
        if folder is None or (isinstance(folder, Const) and not folder.value):
            found.append(source)
    if len(found) != 1:
        return {}
    prefix = found[0].kwargs.get("prefix")
    text = "" if prefix is None else text_of(prefix)
    return {KEYS[0]: fact(text, [prefix.at if prefix is not None else found[0].at])} if text is not None else {}
