"""How many images go through a model at once: all that fit, or as many as are asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


class Passes:
    """Runs some of many at once; a pass that does not fit into memory is halved, and all later ones with it.

    Args:
        most: most in one pass; None for all that fit.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most

    def run(self, items: Sequence[Item], once: Callable[[Sequence[Item]], Sequence[Result]]) -> list[Result]:
        """The results of all, in order.

        Args:
            items: what goes through.
            once: runs some of them together, a result for each.

        Raises:
            torch.OutOfMemoryError: not even one fits.
        """
        found: list[Result] = []
        while len(found) < len(items):
            start = len(found)
            part = items[start : start + (self.most or len(items))]
            try:
                found += once(part)
            except torch.OutOfMemoryError:
                if len(part) == 1:
                    raise
                self.most = len(part) // 2
                logger.warning("%d images do not fit in one pass: %d from now on", len(part), self.most)
                if torch.accelerator.is_available():
                    torch.accelerator.empty_cache()
        return found
