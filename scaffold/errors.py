"""The errors a user can meet. Each is one line: what is wrong, where, what to do.

``cli.main`` prints the line on stderr and leaves with ``exit_code``; anything else that escapes is a bug.
"""

from __future__ import annotations

from scaffold.terminal.printable import printable_command


class ScaffoldError(Exception):
    """Wrong use or a wrong environment.

    Args:
        message: what is wrong and where, one line without a final full stop.
        hint: what the user can do about it, naming the flag or command that helps.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = " ".join(message.split())
        self.hint = " ".join(hint.split()) if hint else None
        super().__init__(self.line)

    @property
    def line(self) -> str:
        """The whole error as one printable line; control characters are shown escaped."""
        text = f"{self.message}; {self.hint}" if self.hint else self.message
        return printable_command(text)


class MisfitError(ScaffoldError):
    """What was given does not fit: a checkpoint that the package does not load; nothing was written."""

    exit_code = 1


class RefusedError(ScaffoldError):
    """The pipeline cannot be integrated this way (verdict ``diffusers`` or ``refused``)."""

    exit_code = 3


class ConflictError(ScaffoldError):
    """Something of the user's stands where output would go; nothing was written."""

    exit_code = 4
