"""The command line of ``new``, and which flags exclude each other."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.new.recipe_options import NO_OPTIONS, RecipeOptions
from scaffold.render.names import model_name
from scaffold.spec.validate import is_date

_CLASS = re.compile(r"[A-Z][A-Z0-9]*[a-z]\w*", re.ASCII)


@dataclass(frozen=True)
class NewRequest:
    """The command line of ``new``."""

    model: str
    pipeline: str | None = None
    checkpoint: str | None = None
    vllm_omni: str | None = None
    verl_omni: str | None = None
    out: str | None = None
    patch: bool = False
    runtime: str | None = None
    profile: str | None = None
    spec: Path | None = None
    date: str | None = None
    force: bool = False
    dry: bool = False
    allow_version_mismatch: bool = False
    recipe: RecipeOptions = NO_OPTIONS
    preset: Path | None = None
    packaged: bool = False
    task: str | None = None


def named_after_pipeline(request: NewRequest) -> NewRequest:
    """Accept as MODEL also the name of a pipeline's class, ``MyModelPipeline``, or of a package."""
    request = replace(request, model=request.model.removesuffix("_flow_grpo"))
    if request.pipeline is not None or request.spec is not None or not _CLASS.fullmatch(request.model):
        return request
    return replace(request, model=model_name(request.model), pipeline=request.model)


def refuse_values(request: NewRequest) -> None:
    """Refuse an invalid date and an empty value: an unset shell variable must not silently mean the default."""
    for flag, value in {
        "--pipeline": request.pipeline,
        "--checkpoint": request.checkpoint,
        "--vllm-omni": request.vllm_omni,
        "--profile": request.profile,
        "--date": request.date,
        "--out": request.out,
        "--verl-omni": request.verl_omni,
    }.items():
        if value is not None and not value.strip():
            raise ScaffoldError(f"{flag} is empty", hint="give it a value or leave it out")
    if request.date is not None and not is_date(request.date):
        raise ScaffoldError(f"--date is {request.date!r}", hint="it must be a date MM/DD/YYYY")


def refuse_flags(request: NewRequest) -> None:
    """Refuse flags whose values a spec already holds: silently preferring either would be wrong."""
    given = {
        "--pipeline": request.pipeline,
        "--checkpoint": request.checkpoint,
        "--vllm-omni": request.vllm_omni,
        "--profile": request.profile,
        "--date": request.date,
        "--preset": request.preset,
        "--task": request.task,
        **request.recipe.flags,
    }
    for flag, value in given.items():
        if value is not None:
            raise ScaffoldError(f"{flag} and --spec exclude each other", hint="edit the spec, or leave --spec out")
