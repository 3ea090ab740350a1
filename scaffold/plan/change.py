"""One path of a plan: its state before and after, which is nothing (None), a file, or a symbolic link.

A checkout may use ``\\r\\n`` where the tool writes ``\\n``; that is not a difference.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

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


def is_crlf(content: bytes) -> bool:
    """Whether every line ends with ``\\r\\n``."""
    return b"\r\n" in content and content.count(b"\n") == content.count(b"\r\n")


def plain(state: FileState | None) -> FileState | None:
    """Return a file with the tool's line ends; links and files with mixed line ends are unchanged."""
    if state is None or state.link or not is_crlf(state.content):
        return state
    return replace(state, content=state.content.replace(b"\r\n", b"\n"))


def as_there(new: FileState | None, there: FileState | None) -> FileState | None:
    """Return a new state with the line ends of the file that it replaces."""
    if new is None or new.link or there is None or there.link or not is_crlf(there.content):
        return new
    if b"\r\n" in new.content:
        return new
    return replace(new, content=new.content.replace(b"\n", b"\r\n"))


Action = Literal["create", "edit", "remove", "same"]


@dataclass(frozen=True)
class PlannedChange:
    """A planned change of one path.

    Attributes:
        path: POSIX path from the root of the plan.
        before: what was there when the plan was made; None for nothing.
        after: what the commit leaves there; None for nothing.
        conflict: why this may not be written without ``--force``, in a few words; None if it may.
        note: what a user should know about the change, in a few words.
    """

    path: str
    before: FileState | None
    after: FileState | None
    conflict: str | None = None
    note: str | None = None

    @property
    def action(self) -> Action:
        """What committing the change does."""
        if self.before == self.after:
            return "same"
        if self.before is None:
            return "create"
        return "remove" if self.after is None else "edit"
