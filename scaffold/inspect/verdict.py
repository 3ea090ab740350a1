"""Whether and how the pipeline can be integrated."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.values import Attr, Call, Choice, Const, External, Obj, Seq, Value

ORDER = 0
KEYS = ("verdict.path", "verdict.reason")


def answers(program: Program) -> dict[str, Fact]:
    """``refused`` where nothing is denoised step by step, ``diffusers`` where the denoiser and its scheduler come
    from a folder in diffusers' layout, ``non_diffusers`` otherwise."""
    loop = program.denoising
    layout = diffusers_layout(program)
    if loop is None and not layout and not (hidden := _step_calls(program)):
        place: Evidence | None = program.place(*program.entry) if program.entry else program.place(program.cls)
        return _verdict(
            "refused", "no denoising loop: nothing the pipeline runs updates a sample from a model's output", [place]
        )
    if layout:
        return _verdict("diffusers", "the denoiser and its scheduler load from a folder in diffusers' layout", layout)
    if loop is not None:
        place = loop.step.at if loop.step is not None else loop.loop.at
        sources = [o.at for _, o in weight_sources(program)]
        reason = "the weights do not load through diffusers, and each denoising step can be replaced"
        return _verdict("non_diffusers", reason, [place, *sources])
    facts = _verdict(
        "non_diffusers", "a loop over a schedule is there, but it was not followed from the request", hidden
    )
    return {key: Fact(f.value, f.evidence, "likely") for key, f in facts.items()}


def _verdict(path: str, reason: str, places: list[Evidence | None]) -> dict[str, Fact]:
    return {"verdict.path": fact(path, places), "verdict.reason": fact(reason, places)}


def weight_sources(program: Program) -> list[tuple[str, Obj | Call]]:
    """What the engine's loader is told to stream, with the name of the attribute that says so."""
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


def diffusers_layout(program: Program) -> list[Evidence | None]:
    """The places that load the denoiser from a component folder and the scheduler from its own; empty if not."""
    components = [o.at for _, o in weight_sources(program) if text_of(o.kwargs.get("subfolder"))]
    schedulers = [
        node.at
        for held in program.pipeline.attrs.values()
        for node in _near(held)
        if isinstance(node, Call) and _loads_component(node)
    ]
    return [*components, *schedulers] if components and schedulers else []


def _near(value: Value) -> list[Value]:
    found: list[Value] = []
    for option in options(value):
        found.append(option)
        if isinstance(option, Call):
            found += [a for a in option.args if isinstance(a, Call | Choice)]
        if isinstance(option, Obj):
            found += [o for v in [*option.args, *option.kwargs.values()] for o in options(v)]
    return found


def _loads_component(value: Call) -> bool:
    """``from_pretrained(…, subfolder="scheduler")`` or ``load_config`` of a scheduler class."""
    if not isinstance(value.func, Attr | External) or value.name not in (
        "from_pretrained",
        "from_config",
        "load_config",
    ):
        return False
    if text_of(value.kwargs.get("subfolder")) is not None:
        return "cheduler" in _path(value) or text_of(value.kwargs.get("subfolder")) == "scheduler"
    return any(isinstance(n, Call) and n is not value and _loads_component(n) for a in value.args for n in walk(a))


def _path(value: Call) -> str:
    if isinstance(value.func, External):
        return value.func.path
    base = value.func.base if isinstance(value.func, Attr) else None
    return base.path if isinstance(base, External) else ""


_SCHEDULE_WORDS = ("timestep", "sigma", "denois", "num_steps", "inference_steps", "diffusion_steps")


def _step_calls(program: Program) -> list[Evidence | None]:
    """Loops of the pipeline's own folder that may denoise: over a schedule, or with a scheduler's ``step`` in them."""
    module = program.cls.module
    folder = module.file.rpartition("/")[0] + "/"
    files = [module.file, *(f for f in program.source.files(folder) if f != module.file)]
    for file in files:
        if not any(word in program.source.read(file) for word in (*_SCHEDULE_WORDS, ".step(")):
            continue
        for loop in ast.walk(program.source.tree(file)):
            if isinstance(loop, ast.For | ast.While) and _may_denoise(loop):
                return [Evidence(file, loop.lineno)]
    return []


def _may_denoise(loop: ast.For | ast.While) -> bool:
    head = loop.iter if isinstance(loop, ast.For) else loop.test
    names = [n.id for n in ast.walk(head) if isinstance(n, ast.Name)]
    names += [n.attr for n in ast.walk(head) if isinstance(n, ast.Attribute)]
    if any(word in name.lower() for name in names for word in _SCHEDULE_WORDS):
        return True
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
            if len(node.args) + len(node.keywords) >= 3:
                return True
    return False
