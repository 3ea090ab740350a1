"""Arguments and options that several commands take."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from scaffold.cli import completion
from scaffold.errors import ScaffoldError


class Format(str, Enum):
    """Output formats of the commands with a JSON answer."""

    text = "text"
    json = "json"


class Task(str, Enum):
    """What a request wants of a pipeline."""

    generate = "generate"
    edit = "edit"

    @property
    def asked(self) -> str | None:
        """The task for other modules; None for the default."""
        return None if self is Task.generate else self.value


TaskOption = Annotated[
    Task,
    typer.Option("--task", help="generate: requests are text alone. edit: they also bring reference images."),
]
Diff = Annotated[bool, typer.Option("--diff", help="Show the changes as a diff, write nothing.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the files, write nothing.")]


def one_output(format: Format, diff: bool) -> bool:
    """Whether the answer is JSON.

    Raises:
        ScaffoldError: a difference is asked for as well.
    """
    if format is Format.json and diff:
        raise ScaffoldError("--diff and --format json exclude each other", hint="--dry-run has the changes as JSON")
    return format is Format.json


AnswerFormat = Annotated[Format, typer.Option("--format", help="How to print the answer.")]


def _svg_file(path: Path | None) -> Path | None:
    """Refuse, before any work, a path where no file can be written."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        what = "is a folder" if path.is_dir() else "lies in no folder"
        raise ScaffoldError(f"--export-svg {path} {what}", hint="name a file in a folder that is there")
    return path


ExportSvg = Annotated[
    Path | None,
    typer.Option("--export-svg", metavar="FILE", help="Also keep the printed text as an SVG.", callback=_svg_file),
]
VllmOmni = Annotated[
    str | None,
    typer.Option(
        "--vllm-omni",
        metavar="VERSION|WHEEL|DIR",
        help="vllm-omni to read; fetched once if a version.",
        autocompletion=completion.versions,
    ),
]
AllowVersionMismatch = Annotated[
    bool,
    typer.Option("--allow-version-mismatch", help="Write for a vllm-omni that the checkout does not pin."),
]
Preset = Annotated[
    Path | None,
    typer.Option("--preset", metavar="FILE", help="Preset that takes precedence over all others; one TOML file."),
]
Packaged = Annotated[
    bool,
    typer.Option("--packaged", help="Ignore presets and templates of the checkout and of your configuration."),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR_OR_REPO",
        help="Folder, file or Hub repository (owner/name[@revision]) whose headers are read, never its data.",
    ),
]
Package = Annotated[str, typer.Argument(metavar="PACKAGE", help="Folder of a package that `new` wrote.")]
