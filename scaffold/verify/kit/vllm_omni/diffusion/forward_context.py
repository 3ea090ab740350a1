"""Stand-in for the context of a forward pass, which the engine sets around a pipeline: there is none here."""

from __future__ import annotations

from typing import Any


def is_forward_context_available() -> bool:
    """Return False: no engine runs."""
    return False


def get_forward_context() -> Any:
    """Return the context.

    Raises:
        RuntimeError: always, since there is none.
    """
    raise RuntimeError("no engine has set a context of a forward pass")
