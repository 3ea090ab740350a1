"""Line ends: a checkout may use ``\\r\\n`` where the tool writes ``\\n``; that is not a difference."""

from __future__ import annotations

from dataclasses import replace

from scaffold.plan.state import FileState


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
