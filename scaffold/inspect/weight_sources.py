"""What the engine's loader is told to stream into which component."""

from __future__ import annotations

from collections.abc import Iterator

from scaffold.inspect.facts import Confidence, Evidence
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.conditions import by_default
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import Call, Const, Obj, Seq
from scaffold.inspect.report import STREAMED
from scaffold.source.values import External, Value


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


# Which weight files a pipeline loads: those streamed to it, else those it opens by itself.

_FILE_LOADERS = ("safetensors.torch.load_file", "safetensors.safe_open", "torch.load")
_WEIGHT_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")


def weight_files(program: Program) -> tuple[dict[str, Evidence | None], Confidence]:
    """Weight files, or the pattern that the loader streams.

    What is streamed only under an option that nobody set is left out; where that is open, nothing is certain.
    """
    files: dict[str, Evidence | None] = {}
    made = {id(r.result): r.conditions for r in program.trace.calls}
    sure: Confidence = "certain"
    for _, source in weight_sources(program):
        taken = [(by_default(cond), truth) for cond, truth in made.get(id(source), ())]
        if any(known is (not truth) for known, truth in taken):
            continue
        if any(known is None for known, _ in taken):
            sure = "likely"
        patterns = source.kwargs.get("allow_patterns_overrides")
        names = [text_of(i) for i in patterns.items] if isinstance(patterns, Seq) else []
        given = source.kwargs.get("subfolder")
        folders = texts_of(given)
        if given is not None and not folders:
            # A folder that is only known when the pipeline runs.
            return {}, sure
        for folder in folders or [None]:
            for name in [n for n in names if n] or [STREAMED]:
                files.setdefault(f"{folder}/{name}" if folder else name, source.at)
    if not files:
        files = _opened(program) or _pretrained(program)
    return files, sure


def opens_files(program: Program) -> bool:
    """Whether the pipeline reads weight files by itself."""
    return any(isinstance(r.func, External) and r.func.path in _FILE_LOADERS for r in program.trace.calls)


def _pretrained(program: Program) -> dict[str, Evidence | None]:
    """The folder from which a class of the source, held by the pipeline, fills its own weights."""
    files: dict[str, Evidence | None] = {}
    for held in program.pipeline.attrs.values():
        for module in options(held):
            if isinstance(module, Obj) and module.json_file is not None and module.cls.is_module:
                given = module.kwargs.get("subfolder")
                if isinstance(given, Call) and given.name == "get" and len(given.args) == 2:
                    given = given.args[1]
                folder = default_of(given)
                if isinstance(folder, str):
                    files.setdefault(f"{folder}/{STREAMED}", module.at)
    return files


def _opened(program: Program) -> dict[str, Evidence | None]:
    files: dict[str, Evidence | None] = {}
    for record in program.trace.calls:
        if isinstance(record.func, External) and record.func.path in _FILE_LOADERS and record.args:
            name = program.execution.library.file_name(record.args[0])
            if name is not None and name.endswith(_WEIGHT_ENDINGS):
                files.setdefault(name, record.at)
    return files
