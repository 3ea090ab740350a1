"""Weights that a loader allocates before it fills them take no memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from scaffold.verify.loading.tensor import follow

LARGE = 1 << 16  # numbers; tables of positions and the like may be smaller, and are computed as ever


class _Loading(TorchFunctionMode):
    """Puts what has no values yet, and is as large as a weight, on the meta device; follows what headers went into."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.empty, torch.rand, torch.randn) and not kwargs.get("out"):
            with torch._C.DisableTorchFunction():
                made = func(*args, **{**kwargs, "device": "meta"})
            if made.numel() >= LARGE:
                return made
        result = func(*args, **kwargs)
        follow((args, kwargs), result)
        return result


@contextmanager
def on_meta() -> Iterator[None]:
    """While a loader runs."""
    with _Loading():
        yield
