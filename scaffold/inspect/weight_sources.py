"""What the engine's loader is told to stream into which component."""

from __future__ import annotations

from collections.abc import Iterator

from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.values import Call, Const, Obj, Seq, Value


def weight_sources(program: Program) -> list[tuple[str, Obj | Call]]:
    """The sources, each with the name of the pipeline's attribute that lists it."""
    found: list[tuple[str, Obj | Call]] = []
    for name, held in program.pipeline.attrs.items():
        for option in options(held):
            if isinstance(option, Seq):
                for item in option.items:
                    found += [
                        (name, o) for o in options(item) if isinstance(o, Obj | Call) and "model_or_path" in o.kwargs
                    ]
    return found


def text_of(value: Value | None) -> str | None:
    """The text of a constant."""
    for option in options(value) if value is not None else []:
        if isinstance(option, Const) and isinstance(option.value, str):
            return option.value
    return None


def component_sources(program: Program) -> Iterator[tuple[Obj | Call, str | None, Value]]:
    """Each source that fills one attribute of the pipeline: the source, its folder if constant, the component.

    A source without a folder streams the repository's root and is left out.
    """
    for _, source in weight_sources(program):
        folder = source.kwargs.get("subfolder")
        if folder is None or (isinstance(folder, Const) and not folder.value):
            continue
        name = (text_of(source.kwargs.get("prefix")) or "").partition(".")[0]
        held = program.pipeline.attrs.get(name)
        if held is not None:
            yield source, text_of(folder), held
