"""One file of the output."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RenderedFile:
    """Content of one output file, or the target of one symbolic link.

    Attributes:
        content: text of the file; empty for a link.
        executable: whether the file may be run directly.
        link_to: target of the link, relative to the folder of the link; None for a file.
        template: path of the template below the templates folder, for messages only.
    """

    content: str = ""
    executable: bool = False
    link_to: str | None = None
    template: str = field(default="", compare=False)
