"""Questions of ``new`` on a terminal: all of them without MODEL, else only those no source answers.

Each answer is an option, and the equivalent command is printed.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from scaffold.errors import RefusedError, ScaffoldError
from scaffold.files.reading import expanded
from scaffold.new.recipe_options import RANK, RecipeOptions, guidance_of, guidance_origin, with_options
from scaffold.new.request import NewRequest
from scaffold.terminal.printable import printable, printable_command

if TYPE_CHECKING:
    from scaffold.spec import IntegrationSpec

SHOWN = 15
LARGEST_RANK = 4096  # the highest --lora-rank
T = TypeVar("T")


def can_ask() -> bool:
    """Whether a person can answer: never in a pipe."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(request: NewRequest) -> NewRequest:
    """Ask for what neither the command nor a package gives, with the detected value as the default.

    Raises:
        ScaffoldError: no such vllm-omni or checkout, or an unsupported pipeline.
        KeyboardInterrupt: the person aborted.
    """
    from scaffold.inspect import inspect_pipeline
    from scaffold.new import refuse
    from scaffold.render.names import model_name, validate_model
    from scaffold.target import Checkout
    from scaffold.upstream import locate, read_registry

    verl_omni, out = request.verl_omni, request.out
    try:
        above = Checkout.above(Path.cwd()) if verl_omni is None and out is None else None
        checkout = Checkout.open(verl_omni) if verl_omni is not None else above
        source = locate(request.vllm_omni, checkout_pin=checkout.vllm_omni_pin if checkout is not None else None)
        typer.echo(f"vllm-omni {printable(source.label)}")
        keys = list(read_registry(source))
        while True:
            pipeline = request.pipeline or _pipeline(keys)
            report = inspect_pipeline(source, pipeline, task=request.task)
            try:
                refuse(report)
                break
            except RefusedError as error:
                if request.pipeline is not None:
                    raise
                typer.echo(printable(error.line))
        for name in ("scheduler.steps", "scheduler.shift", "cfg.scales", "prompt.kind"):
            fact = report.fact(f"answers.{name}")
            place = f"{fact.evidence[0].file}:{fact.evidence[0].line}" if fact.evidence else "no place"
            typer.echo(printable(f"{name}: {fact.value} ({fact.confidence}, {place})"))
        model = _ask("name of the integration", model_name(pipeline), partial(_accepted, validate_model))
        question = "checkpoint, a folder or OWNER/NAME (empty for none)"
        checkpoint = request.checkpoint or _ask(question, "", partial(_accepted, _readable)) or None
        if verl_omni is None and out is None:
            if above is not None and typer.confirm(printable(f"write into the checkout {above.root}"), default=True):
                verl_omni = str(above.root)
            else:
                out = _ask("folder to write to", f"build/{model}", partial(_accepted, _writable))
    except typer.Abort:
        raise KeyboardInterrupt from None
    return replace(request, model=model, pipeline=pipeline, checkpoint=checkpoint, verl_omni=verl_omni, out=out)


def ask_recipe(request: NewRequest, spec: IntegrationSpec, *more: str, everything: bool = True) -> RecipeOptions:
    """Ask for recipe values that were not given, with the spec's as defaults.

    Prints the command that does the same without questions.

    Args:
        request: all but the recipe.
        spec: the spec with the recipe.
        more: options of the command that are not part of the request.
        everything: ask for all values, not only for those that the scripts need and no source gives.

    Raises:
        KeyboardInterrupt: the person aborted.
    """
    found = request.recipe
    try:
        if found.reward is None and (everything or not _reads_words(spec)):
            found = replace(found, reward=_reward(spec))
        if found.resolution is None and _has_no_size(spec):
            found = replace(found, resolution=_resolution(spec))
        if everything and not found.guidance:
            found = replace(found, guidance=tuple(_guidance(spec)))
        if everything and found.lora_rank is None and spec.value("lora.sync") != "none":
            found = replace(found, lora_rank=_lora_rank(spec))
    except typer.Abort:
        raise KeyboardInterrupt from None
    if found == request.recipe and not everything:
        return found
    words = _words(replace(request, recipe=found))
    command = shlex.join(["omni-scaffold", "new", request.model, *words, *more])
    typer.echo(printable_command(f"the same without questions: {command}"))
    return found


def _words(request: NewRequest) -> list[str]:
    """Return the options of a request, without those at their default."""
    options: dict[str, Any] = {
        "--pipeline": request.pipeline,
        "--vllm-omni": request.vllm_omni,
        "--checkpoint": request.checkpoint,
        "--verl-omni": request.verl_omni,
        "--out": request.out,
        "--runtime": request.runtime,
        "--profile": request.profile,
        "--date": request.date,
        "--task": request.task,
        "--preset": request.preset,
        **request.recipe.flags,
    }
    flags = {
        "--patch": request.patch,
        "--packaged": request.packaged,
        "--force": request.force,
        "--allow-version-mismatch": request.allow_version_mismatch,
    }
    words = []
    for option, value in options.items():
        for one in value if isinstance(value, tuple) else (value,):
            words += [] if one is None else [option, str(one)]
    return words + [flag for flag, given in flags.items() if given]


def _reward(spec: IntegrationSpec) -> str | None:
    """Ask for the reward; None keeps the spec's."""
    ocr = _reads_words(spec)
    kinds = "ocr, pickscore or FILE:FUNCTION" if ocr else "FILE:FUNCTION (empty for a variable of the scripts)"
    default = "ocr" if ocr else ""
    given = _ask(f"reward: {kinds}", default, lambda text: _fitting(spec, RecipeOptions(reward=text or None), text))
    return None if given == default else given


def _reads_words(spec: IntegrationSpec) -> bool:
    """Whether the published recipe's reward fits, so that none has to be given."""
    return "media" not in spec.sections or bool(spec.value("media.ocr"))


def _has_no_size(spec: IntegrationSpec) -> bool:
    return bool(spec.value("recipe.sized")) and not (spec.value("recipe.height") and spec.value("recipe.width"))


def _resolution(spec: IntegrationSpec) -> str | None:
    question = "size in pixels, WIDTHxHEIGHT (empty for variables of the scripts)"
    return _ask(question, "", lambda text: _fitting(spec, RecipeOptions(resolution=text or None), text)) or None


def _guidance(spec: IntegrationSpec) -> list[str]:
    """Ask for guidance; return ``NAME=VALUE`` of each changed parameter."""
    values = guidance_of(spec)
    if values:
        typer.echo(printable(f"guidance of the recipe: {guidance_origin(spec)}"))
    found = []
    for name, value in values.items():
        shown = value if isinstance(value, str) else json.dumps(value)

        def fitting(text: str, name: str = name) -> str:
            return _fitting(spec, RecipeOptions(guidance=(f"{name}={text}",)), text)

        given = _ask(f"guidance {name}", shown, fitting)
        found += [] if given == shown else [f"{name}={given}"]
    return found


def _lora_rank(spec: IntegrationSpec) -> int | None:
    """Ask for the LoRA rank, 0 for full fine-tuning; None keeps the spec's."""

    def way(text: str) -> str:
        if text not in ("lora", "full"):
            raise typer.BadParameter(f"{printable(text)} is neither lora nor full")
        return text if text == "lora" else _fitting(spec, RecipeOptions(lora_rank=0), text)

    def rank(text: str) -> int:
        number = int(text) if text.isascii() and text.isdecimal() else 0
        if not 0 < number <= LARGEST_RANK:
            raise typer.BadParameter(f"{printable(text)} is not a rank of an adapter")
        return number

    there = int(spec.value("lora.rank"))
    chosen = _ask("train a LoRA adapter or full parameters: lora, full", "lora" if there else "full", way)
    given = 0 if chosen == "full" else _ask("rank of the LoRA adapter", str(there or RANK), rank)
    return None if given == there else given


def _accepted(check: Callable[[str], object], text: str) -> str:
    """Ask until a check accepts the text, and return it."""
    try:
        check(text)
    except ScaffoldError as error:
        raise typer.BadParameter(printable(error.line)) from None
    return text


def _readable(checkpoint: str) -> None:
    from scaffold.checkpoint import read_checkpoint

    if checkpoint:
        read_checkpoint(checkpoint)


def _writable(folder: str) -> None:
    if expanded(folder).is_file():
        raise ScaffoldError(f"{folder} is a file")


def _fitting(spec: IntegrationSpec, options: RecipeOptions, text: str) -> str:
    """Ask until the recipe accepts the text, and return it."""
    return _accepted(lambda _: with_options(spec, options), text)


def _ask(question: str, default: str, value: Callable[[str], T]) -> T:
    found: T = typer.prompt(printable(question), default=printable(default), value_proc=value)
    return found


def _pipeline(keys: list[str]) -> str:
    """Ask until one pipeline matches: by its key, or by a part that only one key contains."""
    while True:
        wanted = str(typer.prompt("pipeline, or a part of its name"))
        found = [key for key in keys if wanted.lower() in key.lower()]
        exact = [key for key in found if key.lower() in (wanted.lower(), f"{wanted.lower()}pipeline")]
        if len(exact or found) == 1:
            return (exact or found)[0]
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        typer.echo(printable(", ".join(found[:SHOWN]) + more) if found else "no pipeline has that in its name")
