"""Which weight files a pipeline loads: those streamed to it, else those it opens by itself."""

from __future__ import annotations

from scaffold.inspect.facts import Confidence, Evidence
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.by_default import by_default
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import Call, Obj, Seq
from scaffold.inspect.report import STREAMED
from scaffold.inspect.weight_sources import text_of, texts_of, weight_sources
from scaffold.source.values import External

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
