"""The Typer application: one command for each module of ``commands/``, in the order of a package's life."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import scaffold.cli.commands as commands
from scaffold import __version__
from scaffold.errors import ScaffoldError
from scaffold.terminal.interrupt import EXIT_CODE, line
from scaffold.terminal.progress import VOICE


class InterruptedCommandError(ScaffoldError):
    """The user pressed Ctrl-C. Typer would turn a `KeyboardInterrupt` into a status without a message."""

    exit_code = EXIT_CODE


def app(wanted: str = "") -> typer.Typer:
    """Return the application; a command's module holds the function of its own name and its ``ORDER``.

    Args:
        wanted: the command to run; only it is then built. Any other word builds all commands.
    """
    found = typer.Typer(
        name="omni-scaffold",
        help="Bring a model that diffusers cannot load into VeRL-Omni: inspect its vllm-omni pipeline, render the "
        "integration, keep it right.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    found.callback()(_common)
    files = (file for file in Path(commands.__path__[0]).iterdir() if file.suffix == ".py")
    names = [file.stem for file in files if not file.stem.startswith("_")]
    names = [wanted] if wanted in names else names
    modules = [importlib.import_module(f"{commands.__name__}.{name}") for name in names]
    for name, module in sorted(zip(names, modules, strict=True), key=lambda pair: int(pair[1].ORDER)):
        found.command()(_interruptible(getattr(module, name)))
    return found


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the common options and with one line of output on Ctrl-C."""

    @functools.wraps(command)
    def run(*arguments: Any, quiet: bool = False, verbose: bool = False, **options: Any) -> None:
        if quiet and verbose:
            raise ScaffoldError("--quiet and --verbose exclude each other", hint="leave one of them out")
        VOICE.quiet, VOICE.verbose = quiet, verbose
        try:
            command(*arguments, **options)
        except KeyboardInterrupt as interrupt:
            raise InterruptedCommandError(line(f"`omni-scaffold {command.__name__}`", interrupt)) from None

    # Typer reads both.
    signature = inspect.signature(command, eval_str=True)
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind) for name, kind in _VOICE
    ]
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *own])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*signature.parameters.values(), *own)}
    return run


_VOICE = (
    ("quiet", Annotated[bool, typer.Option("--quiet", "-q", help="Print the result alone: no progress, no notes.")]),
    ("verbose", Annotated[bool, typer.Option("--verbose", "-v", help="Each step on stderr, in a pipe too.")]),
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"omni-scaffold {__version__}")
        raise typer.Exit


def _common(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of every command."""
