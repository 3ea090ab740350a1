"""What the text of the engine does not settle."""

from __future__ import annotations


class UndecidedError(Exception):
    """The engine's source leaves the question open; the message says where and why, without a final full stop."""


class LoadingError(Exception):
    """The engine would raise while it loads; the message says where and why, without a final full stop."""
