"""Several requests of a recorded rollout: each on its own way through the pipeline, their calls of the denoiser in one.

Every request has a view of the pipeline, with a scheduler, a record and a tape of its own. Where it calls the denoiser
it waits for the others; calls that differ in nothing but the samples are one, as they are in training, and each request
gets its own rows. Calls that do not fit together are made one after the other.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .calls import by_name
from .lockstep import Lockstep
from .passes import Passes
from .replay import agree, joined
from .values import Table, same


@dataclass
class _Asked:
    """One call that a request makes."""

    arguments: dict[str, Any]
    autocast: torch.dtype | None


class JoinedCalls:
    """Answers the calls of several requests.

    Args:
        denoiser: the engine's.
        method: of it, that pipelines call.
        tables: what the pipeline computes of the denoiser's configuration alone, by name: one serves all samples.
        passes: bounds how many samples are in one call.
    """

    def __init__(self, denoiser: torch.nn.Module, method: str, tables: Mapping[str, Any], passes: Passes) -> None:
        self._denoiser, self._method, self._tables, self._passes = denoiser, method, tables, passes
        self._signature = inspect.signature(getattr(type(denoiser), method))
        self.lockstep: Lockstep[_Asked, Any, Any] = Lockstep(self.answers)

    def view(self) -> torch.nn.Module:
        """The denoiser as one request sees it: the same weights, hooks of its own, calls that wait for the others."""
        view = copy.copy(self._denoiser)
        for name in [name for name in vars(view) if name.startswith(("_forward_hooks", "_forward_pre_hooks"))]:
            vars(view)[name] = OrderedDict()

        # Pipelines look at the signature to know what to give: without it an edit loses its references.
        @functools.wraps(getattr(self._denoiser, self._method))
        def call(*args: Any, **kwargs: Any) -> Any:
            kind = next((p.device.type for p in self._denoiser.parameters()), "cpu")
            cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
            arguments = by_name(self._signature, self._denoiser, args, kwargs)
            return self.lockstep.ask(_Asked({name: self._tabled(value) for name, value in arguments.items()}, cast))

        vars(view)[self._method] = call
        return view

    def _tabled(self, value: Any) -> Any:
        return next((Table(name) for name, table in self._tables.items() if same(table, value)), value)

    def answers(self, asked: Sequence[_Asked]) -> list[Any]:
        """What the denoiser returns to each call, in order."""
        groups: list[list[int]] = []
        for place, call in enumerate(asked):
            group = next((g for g in groups if self._fits(call, asked[g[0]])), None)
            groups.append([place]) if group is None else group.append(place)
        found: dict[int, Any] = {}
        for group in groups:
            rows = self._passes.run(group, lambda part: self._call([asked[place] for place in part]))
            found.update(zip(group, rows, strict=True))
        return [found[place] for place in range(len(asked))]

    @staticmethod
    def _fits(a: _Asked, b: _Asked) -> bool:
        # The latents come first. A call with both branches of guidance in it has two rows, and is made alone: two
        # that are equal in all would pass for one.
        given = a.arguments.values()
        first = next((v for v in given if isinstance(v, list) or (isinstance(v, torch.Tensor) and v.ndim)), [])
        return len(first) == 1 and a.autocast == b.autocast and agree(a.arguments, b.arguments, varying=False)

    def _call(self, asked: Sequence[_Asked]) -> list[Any]:
        arguments = joined([call.arguments for call in asked])
        arguments = {n: self._tables[v.name] if isinstance(v, Table) else v for n, v in arguments.items()}
        cast, kind = asked[0].autocast, next((p.device.type for p in self._denoiser.parameters()), "cpu")
        with torch.autocast(kind, cast, enabled=cast is not None):
            call = self._denoiser if self._method == "forward" else getattr(self._denoiser, self._method)
            output = call(**arguments)
        return [_row(output, place, len(asked)) for place in range(len(asked))]


def _row(output: Any, row: int, rows: int) -> Any:
    """One request's part of what the denoiser returned, in memory of its own.

    Raises:
        TypeError: it has not a row for each request.
    """
    if rows == 1 or output is None or isinstance(output, bool | int | float | str):
        return output
    if isinstance(output, torch.Tensor) and output.ndim and len(output) == rows:
        return output[row : row + 1].clone()
    if isinstance(output, list) and len(output) == rows:
        return [part.clone() if isinstance(part, torch.Tensor) else part for part in output[row : row + 1]]
    if isinstance(output, Mapping):
        made = {name: _row(value, row, rows) for name, value in output.items()}
        return made if type(output) is dict else type(output)(**made)
    if isinstance(output, tuple):
        parts = [_row(value, row, rows) for value in output]
        return type(output)(*parts) if hasattr(output, "_fields") else tuple(parts)
    raise TypeError(f"the denoiser returned a {type(output).__name__} for {rows} requests, not a row for each")


def pipeline_view(pipeline: Any, attribute: str, denoiser: torch.nn.Module, scheduler: Any) -> Any:
    """The pipeline as one request sees it.

    Args:
        pipeline: the adapter.
        attribute: of it, that holds the denoiser.
        denoiser: what the request calls in its place.
        scheduler: what steps and records for it.
    """
    before = pipeline.sde_scheduler
    followed = vars(before).get("_followed")
    if followed is not None:
        scheduler.following(copy.deepcopy(followed))
    view = copy.copy(pipeline)
    for name, value in list(vars(view).items()):
        if value is before:
            object.__setattr__(view, name, scheduler)
    vars(view)["_modules"] = {**vars(view)["_modules"], attribute: denoiser}
    view._watched = False
    return view
