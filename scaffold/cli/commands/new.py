"""An integration rendered and wired into verl-omni."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from scaffold.cli import completion
from scaffold.cli.answer import show, show_json
from scaffold.cli.options import (
    AllowVersionMismatch,
    AnswerFormat,
    Checkpoint,
    Diff,
    DryRun,
    ExportSvg,
    Format,
    Packaged,
    Preset,
    Task,
    TaskOption,
    VllmOmni,
    one_output,
)
from scaffold.errors import ScaffoldError
from scaffold.files.layout import BESIDE, INSTALLED
from scaffold.terminal.interrupt import leaving
from scaffold.terminal.progress import VOICE

ORDER = 40


class Runtime(str, Enum):
    """Where a package in a checkout has the runtime."""

    beside = BESIDE
    installed = INSTALLED


def new(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="Name of the integration, lower-case; or a pipeline's class. Without one, `new` asks on a terminal.",
        ),
    ] = None,
    pipeline: Annotated[
        str | None,
        typer.Option(
            "--pipeline",
            metavar="PIPELINE",
            help="Pipeline to integrate; MODEL by default.",
            autocompletion=completion.pipelines,
        ),
    ] = None,
    checkpoint: Checkpoint = None,
    verl_omni: Annotated[
        str | None, typer.Option("--verl-omni", metavar="CHECKOUT", help="Checkout of verl-omni to write into.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Folder that gets a project of its own: verl-omni stays as it is."),
    ] = None,
    patch: Annotated[
        bool,
        typer.Option("--patch", help="With --out: the files of a checkout, and verl_omni.patch with its edits."),
    ] = False,
    runtime: Annotated[
        Runtime | None,
        typer.Option(
            "--runtime", help="In a checkout: the modules of the runtime beside the package, or the installed one."
        ),
    ] = None,
    vllm_omni: VllmOmni = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="RELEASE", help="verl-omni release to write for with --out (default main)."),
    ] = None,
    spec: Annotated[
        Path | None, typer.Option("--spec", metavar="FILE", help="Render this scaffold.toml instead of inspecting.")
    ] = None,
    date: Annotated[
        str | None,
        typer.Option(
            "--date",
            metavar="MM/DD/YYYY",
            help="Date that documentation pages carry (default today, or SOURCE_DATE_EPOCH).",
        ),
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option("--reward", metavar="ocr|pickscore|FILE:FUNCTION", help="What scores the images (default ocr)."),
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, max=1024, help="GPUs of the scripts.")] = None,
    lora_rank: Annotated[
        int | None,
        typer.Option("--lora-rank", min=0, max=4096, help="Rank of the adapter; 0 trains full parameters."),
    ] = None,
    resolution: Annotated[
        str | None, typer.Option("--resolution", metavar="WIDTHxHEIGHT", help="Size of the images in pixels.")
    ] = None,
    guidance: Annotated[
        list[str] | None,
        typer.Option("--guidance", metavar="NAME=VALUE", help="Guidance while training; may be repeated."),
    ] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            "--algorithm",
            metavar="NAME",
            help="Algorithm to train by, flow_grpo by default; may be repeated, the first is that of the scripts.",
        ),
    ] = None,
    task: TaskOption = Task.generate,
    preset: Preset = None,
    packaged: Packaged = False,
    dry_run: DryRun = False,
    diff: Diff = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
    allow_version_mismatch: AllowVersionMismatch = False,
    export_svg: ExportSvg = None,
    format: AnswerFormat = Format.text,
) -> None:
    """Render the integration of a model and wire it into verl-omni.

    \b
    Examples:
      omni-scaffold new my_model --pipeline MyPipeline --out build/my_model
      omni-scaffold new my_model --pipeline MyPipeline --verl-omni ~/verl-omni --dry-run
    """
    from scaffold.new import NewRequest, plan_new
    from scaffold.new.recipe_options import RecipeOptions
    from scaffold.new.text import print_result

    as_json = one_output(format, diff)
    dry, mismatch = diff or dry_run, allow_version_mismatch
    recipe = RecipeOptions(reward, gpus, lora_rank, resolution, tuple(guidance or ()), tuple(algorithm or ()))
    request = NewRequest(
        model or "",
        pipeline,
        checkpoint,
        vllm_omni,
        verl_omni,
        out,
        patch,
        None if runtime is None else runtime.value,
        profile,
        spec,
        date,
        force,
        dry,
        mismatch,
        recipe,
        preset,
        packaged,
        task.asked,
    )
    from scaffold.cli.questions import ask, ask_recipe, can_ask

    asked = spec is None and not as_json and can_ask()
    if model is None:
        if not asked:
            raise ScaffoldError("Missing argument 'MODEL'", hint="see omni-scaffold new --help")
        request = ask(request)
    if asked and (model is None or not VOICE.quiet):
        shown = ["--diff"] if diff else ["--dry-run"] if dry_run else []
        result = plan_new(request, lambda found: ask_recipe(request, found, *shown, everything=model is None))
    else:
        result = plan_new(request)
    if diff:
        show(result.plan.diff())
    elif as_json and dry:
        show_json(result.to_json(written=False))
    elif dry_run:
        print_result(result, written=None, svg=export_svg)
    if dry:
        result.plan.check()
        return
    written = result.plan.commit()
    with leaving(f"{len(written)} files are written; nothing else is left to do"):
        if as_json:
            show_json(result.to_json(written=True))
        elif not VOICE.quiet:
            print_result(result, written=written, svg=export_svg)
