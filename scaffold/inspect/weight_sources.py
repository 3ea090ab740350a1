"""What the engine's loader is told to stream into which component."""

from __future__ import annotations

from collections.abc import Iterator

from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.values import Call, Const, Obj, Seq
from scaffold.source.values import Value


def weight_sources(program: Program) -> list[tuple[str, Obj | Call]]:
    """The sources, each with the name of the attribute that lists it."""
    return [(name, source) for _, name, source in _listed(program)]


def _listed(program: Program) -> Iterator[tuple[Obj, str, Obj | Call]]:
    """The sources that the pipeline lists, and those that pipelines inside it do."""
    inner = [o for v in program.pipeline.attrs.values() for o in options(v) if isinstance(o, Obj) and o.attrs]
    seen: set[int] = set()
    for holder in [program.pipeline, *inner]:
        for name, held in holder.attrs.items():
            for option in options(held):
                for item in option.items if isinstance(option, Seq) else []:
                    for source in options(item):
                        if (
                            isinstance(source, (Obj, Call))
                            and "model_or_path" in source.kwargs
                            and id(source) not in seen
                        ):
                            seen.add(id(source))
                            yield holder, name, source


def text_of(value: Value | None) -> str | None:
    """The text of a constant."""
    for option in options(value):
        if isinstance(option, Const) and isinstance(option.value, str):
            return option.value
    return None


def texts_of(value: Value | None) -> list[str | None]:
    """All texts that a value may be, None where it may be None."""
    found: list[str | None] = []
    for option in options(value):
        if isinstance(option, Const) and (option.value is None or isinstance(option.value, str)):
            found.append(option.value or None)
    return found


def component_sources(program: Program) -> Iterator[tuple[Obj | Call, str | None, Value]]:
    """Each source that fills one attribute of the pipeline: the source, its folder if constant, the component.

    A source without a folder streams the repository's root and is left out.
    """
    for holder, _, source in _listed(program):
        folder = source.kwargs.get("subfolder")
        if folder is None or (isinstance(folder, Const) and not folder.value):
            continue
        held = _at(holder, (text_of(source.kwargs.get("prefix")) or "").strip(".").split("."))
        if held is not None:
            yield source, text_of(folder), held


def _at(holder: Obj, path: list[str]) -> Value | None:
    """The value that a dotted path of attributes leads to."""
    value: Value | None = holder
    for name in path:
        inner = next((o for o in options(value) if isinstance(o, Obj)), None) if value is not None else None
        value = inner.attrs.get(name) if inner is not None else None
    return value
