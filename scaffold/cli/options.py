"""Arguments and options that several commands take."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer


class Format(str, Enum):
    """Output formats of the commands that answer."""

    text = "text"
    json = "json"


VllmOmni = Annotated[
    str | None,
    typer.Option("--vllm-omni", metavar="VERSION|WHEEL|DIR", help="vllm-omni to read; fetched once if a version."),
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
