"""Ctrl-C: what a command was doing, what it has written, how to go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXIT_CODE = 130
NOTHING = "nothing was written"
AGAIN = "run the command again"


class Interrupted(KeyboardInterrupt):
    """A `KeyboardInterrupt` that knows where it came in.

    Args:
        doing: what was being done; None where that is not worth a word.
        left: what is on disk now, if not `NOTHING`, and how to go on.
    """

    def __init__(self, doing: str | None = None, left: str | None = None) -> None:
        super().__init__()
        self.doing = doing
        self.left = left


def line(command: str, interrupt: BaseException) -> str:
    """Return the message for an interrupted command."""
    doing = getattr(interrupt, "doing", None)
    left = getattr(interrupt, "left", None)
    return f"{command} was interrupted{f' while {doing}' if doing else ''}; {left or f'{NOTHING}; {AGAIN}'}"


@contextmanager
def doing(text: str) -> Iterator[None]:
    """Name what the block does, for a user who interrupts it; the innermost block counts."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise _with(interrupt, doing=text) from None


@contextmanager
def leaving(text: str | None) -> Iterator[None]:
    """Say what is on disk if the block is interrupted, None for `NOTHING`; of nested blocks the innermost counts."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise _with(interrupt, left=text) from None


def _with(interrupt: KeyboardInterrupt, *, doing: str | None = None, left: str | None = None) -> Interrupted:
    known = interrupt if isinstance(interrupt, Interrupted) else Interrupted()
    return Interrupted(known.doing or doing, known.left or left)
