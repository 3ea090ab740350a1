"""What the engine puts before the names of a checkpoint before the pipeline's loader sees them."""

from __future__ import annotations

from scaffold.inspect.facts import Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.values import Const, Obj
from scaffold.inspect.weight_sources import text_of, weight_sources

ORDER = 8
KEYS = ("detail.checkpoint.loader_prefix", "detail.checkpoint.second_prefix", "detail.checkpoint.second_names")


def answers(program: Program) -> dict[str, Fact]:
    """``loader_prefix`` where one weight source streams the root and its prefix is a text; no prefix is an empty one.

    ``second_prefix`` is one that names a module whose parts the pipeline holds itself before, ``second_names`` these:
    vllm loads an embedding that stands twice under its first name, and raises where it comes under the second alone.
    """
    return {**_of_root(program), **_second(program)}


def _second(program: Program) -> dict[str, Fact]:
    held = list(program.pipeline.attrs.items())
    for _, source in weight_sources(program):
        prefix = text_of(source.kwargs.get("prefix")) or ""
        for place, (name, value) in enumerate(held):
            for module in options(value) if prefix == f"{name}." else []:
                if not isinstance(module, Obj):
                    continue
                program.execution.attributes.ensure_ready(module)
                before = {inner: {id(o) for o in options(part) if isinstance(o, Obj)} for inner, part in held[:place]}
                twice = [n for n, part in module.attrs.items() if before.get(n, set()) & {id(o) for o in options(part)}]
                if twice:
                    return {
                        "detail.checkpoint.second_prefix": fact(prefix, [source.at, module.at]),
                        "detail.checkpoint.second_names": fact(twice, [module.at]),
                    }
    return {}


def _of_root(program: Program) -> dict[str, Fact]:
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
