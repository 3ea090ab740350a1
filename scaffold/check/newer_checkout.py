"""A checkout of a verl-omni that is newer than every release that is known: rules may not fit it."""

from __future__ import annotations

from scaffold.check.model.tree import DiskTree
from scaffold.check.targets import Target
from scaffold.errors import ScaffoldError
from scaffold.target import Checkout


def newer_checkout(target: Target) -> str | None:
    """Return the line that says so, and what differs from the nearest release; None for any other tree."""
    tree = target.project.tree
    if not target.project.complete or not isinstance(tree, DiskTree):
        return None
    try:
        checkout = Checkout.open(tree.root)
    except ScaffoldError:
        return None
    return checkout.notes[0] if checkout.newer else None
