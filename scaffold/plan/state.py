"""The state of a path: nothing (None), a file, or a symbolic link."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from scaffold.render.rendered import RenderedFile


@dataclass(frozen=True)
class FileState:
    """A file's bytes and whether it is executable, or a link's target as bytes."""

    content: bytes
    executable: bool = False
    link: bool = False

    @classmethod
    def text(cls, text: str, *, executable: bool = False) -> FileState:
        """Return the state of a file that holds ``text`` in UTF-8."""
        return cls(text.encode(), executable)

    @classmethod
    def of(cls, file: RenderedFile) -> FileState:
        """Return the state of a rendered file."""
        if file.link_to is not None:
            return cls(file.link_to.encode(), link=True)
        return cls.text(file.content, executable=file.executable)

    @property
    def mode(self) -> str:
        """The mode as git writes it."""
        return "120000" if self.link else "100755" if self.executable else "100644"

    @property
    def content_sha256(self) -> str:
        """SHA-256 of the content alone, as ``scaffold.toml`` keeps it."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def digest(self) -> str:
        """SHA-256 of mode and content, to tell one state from another."""
        return hashlib.sha256(self.mode.encode() + b":" + self.content).hexdigest()
