"""A checkpoint compared with a package by loading it, or the map that is inferred for a pipeline."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from scaffold.cli.answer import show_json, show_next
from scaffold.cli.options import Checkpoint, Format, VllmOmni
from scaffold.errors import ScaffoldError
from scaffold.reading import expanded

ORDER = 50


def remap(
    target: Annotated[str, typer.Argument(metavar="PACKAGE_OR_PIPELINE", help="Folder of a package, or a pipeline.")],
    checkpoint: Checkpoint = None,
    vllm_omni: VllmOmni = None,
    format: Annotated[Format, typer.Option("--format", help="How to print the map and its proof.")] = Format.text,
) -> None:
    """Let a package load a checkpoint's headers; infer a key map.

    A package's own loader runs, in a child process; for a pipeline, the key map is inferred. Exit 1 where a
    parameter stays empty or a tensor is left out.

    \b
    Example:
      omni-scaffold remap verl_omni/pipelines/foo_flow_grpo --checkpoint ~/weights/foo
    """
    for flag, value in {"checkpoint": checkpoint, "vllm-omni": vllm_omni}.items():
        if value is not None and not value.strip():
            raise ScaffoldError(f"--{flag} is empty", hint="give it a value or leave it out")
    if "/" in target or Path(target).exists():
        _package(target, checkpoint, vllm_omni, format)
    else:
        _pipeline(target, checkpoint, vllm_omni, format)


def _package(package: str, checkpoint: str | None, vllm_omni: str | None, format: Format) -> None:
    from scaffold.verify.loading import load_headers
    from scaffold.verify.loading.text import finding_lines, print_loading
    from scaffold.verify.package import open_package

    open_package(package)
    if vllm_omni is not None:
        raise ScaffoldError("--vllm-omni belongs to a pipeline; a package has its own loader", hint="leave it out")
    if checkpoint is None:
        hint = "--checkpoint DIR, a weight file, or a Hub repository as owner/name"
        raise ScaffoldError("say which checkpoint the package is to load", hint=hint)
    proof = load_headers(package, checkpoint)
    if format is Format.json:
        show_json(proof.to_json())
        for line in finding_lines(proof):
            typer.echo(line, err=True)
    else:
        print_loading(proof)
        if proof.holds:
            given = ["--checkpoint", checkpoint] if expanded(checkpoint).is_dir() else []
            show_next(f"`omni-scaffold verify {shlex.join([package, *given])}`")
    if not proof.holds:
        raise typer.Exit(1)


def _pipeline(pipeline: str, checkpoint: str | None, vllm_omni: str | None, format: Format) -> None:
    from scaffold.new.inferred import infer
    from scaffold.remap.text import SHOWN, offender_lines, print_proof

    found = infer(pipeline, checkpoint, vllm_omni)
    if format is Format.json:
        show_json(found.proof.to_json())
        for line in offender_lines(found.proof.offenders, SHOWN):
            typer.echo(line, err=True)
    else:
        print_proof(found.title, found.proof, found.notes)
        options = "".join(
            f" {flag} {shlex.quote(value)}"
            for flag, value in (("--checkpoint", checkpoint), ("--vllm-omni", vllm_omni))
            if value is not None
        )
        if found.proof.holds:
            show_next(f"`omni-scaffold new MODEL --pipeline {shlex.quote(pipeline)}{options} --out DIR`")
    if not found.proof.holds:
        raise typer.Exit(1)
