"""Recovers from an interrupted run before the command does anything else, and reports it at once."""

from __future__ import annotations

import sys
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.plan.transaction import is_interrupted, recover
from scaffold.terminal.printable import printable


def recover_aloud(root: Path, *, dry: bool = False) -> None:
    """Undo or finish an interrupted run in ``root``, and say which on stderr.

    Args:
        root: the tree.
        dry: nothing may be written.

    Raises:
        ScaffoldError: it cannot be undone, or ``dry`` forbids it: the command would then show something other than what
            it would do.
    """
    if dry:
        if is_interrupted(root):
            hint = "the next `new`, `update` or `remove` there that writes undoes or finishes it"
            raise ScaffoldError(f"{root}: an interrupted run left its changes half made", hint=hint)
        return
    said = recover(root)
    if said is not None:
        print(printable(f"note: {root}: {said}"), file=sys.stderr)
