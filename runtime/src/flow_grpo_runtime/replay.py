"""Calls of the denoiser in training: those that the rollout recorded, made again with gradients.

A call that evaluated several branches as a batch is split into its rows, and training evaluates each once. Samples
whose calls differ in nothing but the samples share one where the plan says so.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .calls import COLUMN
from .model import CallPlan
from .records import read_column
from .tape_play import Taped
from .values import Table, copied, keys_of, rows_of, same, samples_of, value_at


def read_calls(batch: Any) -> list[dict[str, Any]]:
    """Read ``COLUMN`` of a micro-batch: what :class:`DenoiserCalls` takes.

    Raises:
        ValueError: a rollout recorded no tape.
    """
    found = read_column(batch, COLUMN)
    if not all("tapes" in record for record in found):
        raise ValueError("the rollout carried no noise levels: its package is another one than training's")
    return found


@dataclass
class _Call:
    """A call that training makes, alone or with others, and the row of the prediction that is taken from it."""

    arguments: dict[str, Any]
    row: int
    alone: bool  # it has this row alone
    dtype: torch.dtype
    autocast: torch.dtype | None
    changed: set[str]
    front: bool  # where the latents' part of the prediction stands

    @classmethod
    def of(
        cls, record: Mapping[str, Any], step: int, latents: torch.Tensor, place: tuple[int, int], *, front: bool
    ) -> _Call:
        """The call of a prediction: of one row, where the recorded call has others and can be split."""
        node, row = record["calls"][place[0]], place[1]
        arguments, changed = value_at(node, step, latents), set(record["changed"])
        made = record["predictions"][step][place[0]]
        # A denoiser that makes several predictions of one sample doubles it itself, and cannot be split.
        alone = samples_of(node, latents) == {made} and not changed
        if alone:
            arguments, row = _row(arguments, row, made), 0
        return cls(arguments, row, alone, record["dtype"], record["autocast"], changed, front)

    def fits(self, other: _Call, *, varying: bool) -> bool:
        """Whether both can be one call."""
        kind, others = ((c.alone, c.dtype, c.autocast, c.front) for c in (self, other))
        alike = kind == others
        return self.alone and alike and agree(self.arguments, other.arguments, varying=varying)


class DenoiserCalls:
    """The calls of one step whose predictions the tapes of the samples take.

    A plain object on purpose: what shards a module casts the tensors that it is given, and would round the time of a
    step to bfloat16.

    Args:
        plan: how the pipeline calls its denoiser.
        recorded: what :func:`read_calls` returns, for each sample.
        latents: ``(B, …)`` float32 latents of the step.
        step: index into the trajectory.

    Raises:
        ValueError: the calls are not those of these trajectories.
    """

    def __init__(self, plan: CallPlan, recorded: Sequence[Mapping[str, Any]], latents: torch.Tensor, step: int) -> None:
        if len(recorded) != len(latents):
            raise ValueError(f"{COLUMN} holds calls of {len(recorded)} samples for {len(latents)} trajectories")
        self.plan = plan
        self._samples: list[torch.Tensor] = []
        self._calls: list[_Call] = []
        self._free: list[torch.Tensor] = []
        self._tapes: list[tuple[Taped, torch.Tensor]] = []
        self._levels: list[torch.Tensor] = []
        for record, row in zip(recorded, torch.split(latents, 1), strict=True):
            if not 0 <= step < len(record["tapes"]):
                raise ValueError(f"{COLUMN} holds {len(record['tapes'])} steps, step {step} is asked for")
            tape = Taped.read(record, step)
            self._tapes.append((tape, row))
            self._levels.append(record["levels"])
            for place in tape.places:
                self._samples.append(row)
                self._calls.append(_Call.of(record, step, row, place, front=tape.front))
            free = record["free"][step]
            self._free.append(torch.ones_like(row, dtype=torch.bool) if free is None else free.to(row.device))
        if plan.padded:
            _pad(self._calls)
        self._groups = self._grouped()

    def __len__(self) -> int:
        return len(self._tapes)

    @property
    def levels(self) -> list[torch.Tensor]:
        """Noise levels ``(S + 1,)`` float32 of all steps of each sample, from 1 downwards."""
        return self._levels

    def velocity(self, predictions: torch.Tensor) -> torch.Tensor:
        """What the pipeline makes of predictions, each sample by its own tape.

        Args:
            predictions: ``(N, …)``, as :meth:`evaluate` returns them.

        Returns:
            ``(B, …)`` float32, d x / d sigma, in the shape of the latents.

        Raises:
            ValueError: there are more or fewer predictions than the tapes take.
            TapeError: a tape holds what it may not.
        """
        taken = [tape.places for tape, _ in self._tapes]
        if len(predictions) != sum(map(len, taken)):
            raise ValueError(f"{len(predictions)} predictions were made where the tapes take {sum(map(len, taken))}")
        rows = iter(torch.split(predictions, 1))
        velocities = []
        for (tape, latents), places in zip(self._tapes, taken, strict=True):
            velocities.append(tape.velocity({place: next(rows) for place in places}, latents))
        return torch.cat(velocities)

    @property
    def free(self) -> torch.Tensor | None:
        """Elements ``(B, …)`` of the latents that take part in the step; None where all do.

        Raises:
            ValueError: samples differ in how many do.
        """
        free = torch.cat(self._free)
        if len(set(free.flatten(1).sum(dim=1).tolist())) != 1:
            raise ValueError("samples of a micro-batch differ in how much of their latents is given")
        return None if free.all() else free

    def evaluate(
        self, denoiser: Callable[..., Any], dtype: torch.dtype, tables: Mapping[str, Any] | None = None
    ) -> torch.Tensor:
        """Call the denoiser for each sample, or for samples that fit together.

        Args:
            denoiser: takes the arguments by name.
            dtype: of its weights; arguments that had the dtype of the rollout's weights are cast to it.
            tables: what the pipeline computes of the denoiser's configuration alone, by name.

        Returns:
            Predictions ``(N, …)`` in the shape of the latents: all that the tapes take, one sample's behind the
            other's.

        Raises:
            RuntimeError: the denoiser does not predict for each of the samples.
        """
        sample = self._samples[0]
        predictions: dict[int, torch.Tensor] = {}
        idle: list[torch.Tensor] = []
        device = sample.device
        for group in self._on_every_rank(device):
            call = self._calls[group[0]]
            arguments = joined([self._calls[place].arguments for place in group])
            arguments = {n: (tables or {})[v.name] if isinstance(v, Table) else v for n, v in arguments.items()}
            # The engine may compute in a narrower dtype than that of the weights.
            arguments = {name: _cast(value, call.dtype, dtype, device) for name, value in arguments.items()}
            arguments |= {name: copied(arguments[name]) for name in call.changed & arguments.keys()}
            with torch.autocast(device.type, call.autocast, enabled=call.autocast is not None):
                output = denoiser(**self.plan.as_called(arguments))
            rows = rows_of(output, sample, self.plan.output, front=call.front)
            if call.alone and len(rows) != len(group):
                raise RuntimeError(
                    f"the denoiser made {len(rows)} predictions for {len(group)} samples: set stacked=False in CALLS"
                )
            if group[0] in predictions:  # made for the other ranks alone
                idle += rows
            predictions = {place: rows[call.row + i] for i, place in enumerate(group)} | predictions
        together = torch.cat([predictions[place] for place in range(len(self._calls))])
        for row in idle:
            together = together + 0 * row.sum()
        return together

    def _grouped(self) -> list[list[int]]:
        """Which calls become one, by their places."""
        varying = self.plan.others[0] < self.plan.others[1]
        groups: list[list[int]] = []
        for place, call in enumerate(self._calls):
            fitting = (g for g in groups if self.plan.stacked and call.fits(self._calls[g[0]], varying=varying))
            group = next(fitting, None)
            if group is not None:
                group.append(place)
            else:
                groups.append([place])
        return groups

    def _on_every_rank(self, device: torch.device) -> list[list[int]]:
        """As many groups as the rank that needs most: the layers of sharded ranks wait for each other at every call."""
        groups = [list(group) for group in self._groups]
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            most = torch.tensor(len(groups), device=device)
            torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
            while len(groups) < int(most) and len(largest := max(groups, key=len)) > 1:
                groups.append([largest.pop()])
            groups += [list(groups[-1])] * (int(most) - len(groups))  # samples of other ranks take more predictions
        return groups


def each_alone(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A denoiser's ``forward`` that calls it once for each sample, and joins what it returns.

    Some of the engine's denoisers let the padding of a batch take part in attention: there a sample gets what it gets
    alone, as in training, only where it is alone.

    Args:
        forward: takes the samples, a list or a tensor ``(B, …)``, as its first argument.
    """
    names = list(inspect.signature(forward).parameters)

    @functools.wraps(forward)
    def called(*args: Any, **kwargs: Any) -> Any:
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        rows = len(arguments[names[0]])
        made = [forward(**{name: _row(value, row, rows) for name, value in arguments.items()}) for row in range(rows)]
        return joined(made) if rows > 1 else made[0]

    return called


def _row(value: Any, row: int, rows: int) -> Any:
    """One row of what has one for each sample, along the first dimension or in a list; the rest serves all of them."""
    if isinstance(value, torch.Tensor):
        return value[row : row + 1] if value.ndim and len(value) == rows else value
    if isinstance(value, dict):
        return {key: _row(item, row, rows) for key, item in value.items()}
    if isinstance(value, list) and len(value) == rows:
        return value[row : row + 1]
    return type(value)(_row(item, row, rows) for item in value) if isinstance(value, list | tuple) else value


def _alike(a: Any, b: Any) -> bool:
    """Whether two samples have as many tensors of the same shapes: images of other sizes would have to be padded."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype
    if isinstance(a, list | tuple | dict):
        return type(a) is type(b) and keys_of(a) == keys_of(b) and all(_alike(a[key], b[key]) for key in keys_of(a))
    return same(a, b)


def agree(a: Any, b: Any, *, varying: bool) -> bool:
    """Whether one call can have two values of an argument: each has one row, or they are the same."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.ndim and len(a) == 1:
        return a.shape == b.shape and a.dtype == b.dtype
    if isinstance(a, list | tuple | dict):
        if type(a) is not type(b) or keys_of(a) != keys_of(b):
            return False
        if isinstance(a, list) and len(a) == 1 and (not varying or _alike(a, b)):
            return True
        return all(agree(a[key], b[key], varying=varying) for key in keys_of(a))
    return same(a, b)


def joined(values: Sequence[Any]) -> Any:
    """One value of an argument for samples that agree in it."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(list(values)) if len(values) > 1 and first.ndim and len(first) == 1 else first
    if isinstance(first, dict):
        return {key: joined([value[key] for value in values]) for key in first}
    if isinstance(first, list) and len(first) == 1:
        return [item for value in values for item in value]
    return type(first)(map(joined, zip(*values, strict=True))) if isinstance(first, list | tuple) else first


def _lengthened(values: Sequence[Any], lengths: Sequence[int], longest: int) -> list[Any]:
    """Values of an argument, with zeros behind those tensors that are as long as their sample's text."""
    first = values[0]
    nested = isinstance(first, list | tuple | dict) and all(type(value) is type(first) for value in values)
    if nested and all(keys_of(value) == keys_of(first) for value in values):
        columns = [_lengthened([value[key] for value in values], lengths, longest) for key in keys_of(first)]
        made = list(zip(*columns, strict=True)) or [()] * len(values)
        return [dict(zip(first, row, strict=True)) if isinstance(first, dict) else type(first)(row) for row in made]
    pairs = list(zip(values, lengths, strict=True))
    if all(isinstance(value, torch.Tensor) and value.ndim > 1 and value.shape[:2] == (1, n) for value, n in pairs):
        return [torch.nn.functional.pad(v, (0, 0) * (v.ndim - 2) + (0, longest - n)) for v, n in pairs]
    return list(values)


def _pad(calls: Sequence[_Call]) -> None:
    """Make texts that have a mask equally long: the mask, of ones until here, leaves out the zeros behind them."""
    for name in [name for name in calls[0].arguments if name.endswith("mask")] if all(c.alone for c in calls) else ():
        masks = [m for m in (call.arguments.get(name) for call in calls) if isinstance(m, torch.Tensor)]
        if len(masks) != len(calls) or not all(m.ndim == 2 and not m.is_floating_point() and m.all() for m in masks):
            continue
        lengths = [mask.shape[1] for mask in masks]
        if len(set(lengths)) > 1:
            made = _lengthened([call.arguments for call in calls], lengths, max(lengths))
            for call, arguments in zip(calls, made, strict=True):
                call.arguments = arguments


def _cast(value: Any, engine: torch.dtype, dtype: torch.dtype, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device, dtype if value.dtype == engine and value.is_floating_point() else None)
    if isinstance(value, dict):
        return {key: _cast(item, engine, dtype, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_cast(item, engine, dtype, device) for item in value])
    return value
