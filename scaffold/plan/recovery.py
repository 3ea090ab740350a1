"""What an interrupted run left is ended first, and said at once: whatever the command then meets."""

from __future__ import annotations

import sys
from pathlib import Path

from scaffold.plan.transaction import recover
from scaffold.printable import printable


def recover_aloud(root: Path) -> None:
    """Undo or finish what an interrupted run left in ``root``, and say which on stderr."""
    said = recover(root)
    if said is not None:
        print(printable(f"note: {root}: {said}"), file=sys.stderr)
