"""Stand-ins for the engine's parameters: the pipeline's own loader puts weights there, and says where they belong."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from .checkpoint import Checkpoint, DenoiserSource
from .fused import EXPERT_PARTS, QKV, Fused

logger = logging.getLogger(__name__)


def place(
    module: nn.Module, weights: Iterable[tuple[str, Tensor, str, str]], checkpoint: Checkpoint, source: DenoiserSource
) -> None:
    """Hand each weight to where the pipeline's loader puts it.

    Args:
        module: built on the meta device.
        weights: name for the loader, tensor, file and key.
        checkpoint: its ``state`` takes the tensors.
        source: where the pipeline gets its denoiser from.

    Raises:
        ValueError: two tensors lead to one parameter.
    """
    slots = _slots(module, checkpoint, source)
    unused: list[str] = []
    cut: list[tuple[str, torch.Size, str, str]] = []
    children = {name for name, _ in module.named_children()}
    others: dict[str, str] = {}  # of each other component, the first name

    def tracked() -> Iterator[tuple[str, Tensor]]:
        for name, tensor, path, key in weights:
            first = name.partition(".")[0]
            if source.own and first not in children:
                others.setdefault(first, name)
                continue
            before = len(checkpoint.state)
            checkpoint.loading = (tensor if path else None, path, key)
            yield name, tensor
            if len(checkpoint.state) == before:
                unused.append(key)
            elif source.own and not any(_covers(taken, tensor) for taken in list(checkpoint.state.values())[before:]):
                cut.append((name, tensor.shape, path, key))

    if source.own:
        _by_names(module, slots, tracked())
        trace(module, cut, checkpoint, source)
    elif (loader := getattr(type(module), "load_weights", None)) is not None:
        # The loader is the denoiser's own; it meets slots where the engine's parameters would be.
        loader(_Loading(module, slots, apart=source.handed), tracked())
    else:
        for name, tensor in tracked():
            if name in slots:
                slots[name].weight_loader(slots[name], tensor)
    if others:
        logger.warning("tensors of other components are not used, such as %s", ", ".join(others.values()))
    if unused:
        logger.warning("%d tensors of the checkpoint are not used: %s", len(unused), ", ".join(unused[:10]))


def trace(
    module: nn.Module, cut: Iterable[tuple[str, torch.Size, str, str]], checkpoint: Checkpoint, source: DenoiserSource
) -> None:
    """Find which rows of the files each parameter got of a tensor that was cut or put in another order.

    The numbers of the rows go the way that the rows went. Where a loader does not take them, saving says so.

    Args:
        module: built on the meta device.
        cut: name for the loader, shape, file and key of each such tensor.
        checkpoint: its ``cut`` and ``heights`` take the rows.
        source: where the pipeline gets its denoiser from.
    """
    traced = Checkpoint()

    def numbered() -> Iterator[tuple[str, Tensor]]:
        for name, shape, path, key in cut:
            rows = torch.arange(shape[0]).reshape(-1, *(1 for _ in shape[1:]))
            traced.loading, before = (rows, path, key), len(traced.state)
            yield name, rows
            for parameter in list(traced.state)[before:]:
                checkpoint.cut[parameter] = path, key, _runs(traced.state[parameter].flatten())
            checkpoint.heights[path, key] = shape[0]

    try:
        _by_names(module, _slots(module, traced, source), numbered())
    except (AssertionError, IndexError, RuntimeError, ValueError) as error:
        logger.warning("which rows of the checkpoint some parameters are is not known: %s", error)


def _by_names(module: nn.Module, slots: dict[str, Any], weights: Iterable[tuple[str, Tensor]]) -> None:
    """Hand weights to the modules of their names: to a loader of the module's own, or to its parameters."""
    slots_of: dict[str, dict[str, Any]] = {name: {} for name, _ in module.named_children()}
    for name, slot in slots.items():
        first, _, rest = name.partition(".")
        slots_of[first][rest] = slot
    for first, group in groupby(weights, key=lambda weight: weight[0].partition(".")[0]):
        child, own = getattr(module, first), slots_of[first]
        named = ((name.partition(".")[2], tensor) for name, tensor in group)
        if hasattr(type(child), "load_weights"):
            type(child).load_weights(_Loading(child, own, apart=False), named)
            continue
        for name, tensor in named:
            if name in own:
                own[name].weight_loader(own[name], tensor)


def _covers(part: Tensor, full: Tensor | None) -> bool:
    """Whether ``part`` is ``full``, or a view of all of it."""
    if full is None:
        return False
    return part is full or (part.shape, part.stride(), part.data_ptr()) == (
        full.shape,
        full.stride(),
        full.data_ptr(),
    )


def _runs(rows: Tensor) -> list[tuple[int, int]]:
    """First number and length of each run of numbers that follow each other."""
    starts = [0, *((rows.diff() != 1).nonzero().flatten() + 1).tolist(), len(rows)]
    return [(int(rows[a]), b - a) for a, b in pairwise(starts)]


def _slots(module: nn.Module, checkpoint: Checkpoint, source: DenoiserSource) -> dict[str, Any]:
    """A slot for each parameter that the engine's denoiser has, by its name there."""
    state = module.state_dict()
    for second in state.keys() - {name for name, _ in (*module.named_parameters(), *module.named_buffers())}:
        del state[second]  # another name of a tied parameter
    slots: dict[str, Any] = {name: Slot((name,), state, checkpoint) for name in state}
    for path, inner in module.named_modules():
        slots |= _fused_slots(path, inner, state, checkpoint, source.fused)
        if type(inner).__name__ == "RoutedExperts":
            for fused_name in {fused_name for fused_name, _ in EXPERT_PARTS.values()}:
                slots[f"{path}.{fused_name}"] = ExpertSlot(path, state, checkpoint)
    return slots


def _fused_slots(
    path: str, inner: nn.Module, state: dict[str, Tensor], checkpoint: Checkpoint, fused: Fused
) -> dict[str, Slot]:
    slots = {}
    start = f"{path}." if path else ""
    for base in type(inner).__mro__:
        for _, layer, parts in (entry for entry in fused if entry[0] == base.__name__):
            for kind in ("weight", "bias"):
                names = tuple(f"{start}{part}.{kind}" for part in parts)
                if all(name in state for name in names):
                    slots[f"{start}{layer}.{kind}"] = Slot(names, state, checkpoint)
    return slots


class Slot:
    """Stands for one of the engine's parameters and takes what its loader puts there.

    Args:
        names: the module's parameters that it stands for, in the order of its rows.
        state: the module's parameters.
        checkpoint: its ``state`` takes the tensors.
    """

    def __init__(self, names: tuple[str, ...], state: dict[str, Tensor], checkpoint: Checkpoint) -> None:
        self.names, self.parts, self.checkpoint = names, [state[name] for name in names], checkpoint
        self.dtype, self.device = self.parts[0].dtype, torch.device("cpu")

    @property
    def shape(self) -> torch.Size:
        """Shape of the parameter that it stands for."""
        return torch.Size((sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:]))

    @property
    def data(self) -> Slot:
        """Itself: loaders copy there."""
        return self

    def copy_(self, tensor: Tensor) -> Slot:
        """Take a weight."""
        self.weight_loader(self, tensor)
        return self

    def weight_loader(self, slot: Any, tensor: Tensor, shard: str | int | None = None) -> None:
        """Take a weight, or one part of a fused one."""
        if len(self.names) == 1:
            self._take(self.names[0], tensor)
        elif shard is None:
            rows = torch.split(tensor, [part.shape[0] for part in self.parts])
            for name, part in zip(self.names, rows, strict=True):
                self._take(name, part)
        else:
            index = QKV.index(shard) if isinstance(shard, str) else shard
            self._take(self.names[index], tensor)

    def _take(self, name: str, tensor: Tensor) -> None:
        full, path, key = self.checkpoint.loading
        if name in self.checkpoint.state:
            raise ValueError(f"{path}: {key!r} is the second tensor that leads to parameter {name!r}")
        self.checkpoint.state[name] = tensor
        if _covers(tensor, full):
            self.checkpoint.keys[name] = (path, key)


class ExpertSlot:
    """Stands for one of the engine's parameters of all experts of a layer.

    Args:
        path: the layer.
        state: the module's parameters.
        checkpoint: its ``state`` takes the tensors.
    """

    def __init__(self, path: str, state: dict[str, Tensor], checkpoint: Checkpoint) -> None:
        self.path, self.state, self.checkpoint = path, state, checkpoint

    def weight_loader(
        self, slot: Any, tensor: Tensor, name: str, shard_id: str, expert_id: int, return_success: bool = False
    ) -> bool:
        """Take a part of one expert."""
        layer = next(layer for layer, (_, part) in EXPERT_PARTS.items() if part == shard_id)
        Slot((f"{self.path}.{expert_id}.{layer}.weight",), self.state, self.checkpoint).weight_loader(slot, tensor)
        return True


class _Loading:
    """The denoiser as its own loader sees it: slots in place of parameters, all else as it is.

    ``apart``: buffers are no parameters.
    """

    def __init__(self, module: nn.Module, slots: dict[str, Any], *, apart: bool) -> None:
        self._module, self._slots = module, slots
        self._buffers = {name for name, _ in module.named_buffers()} if apart else set()

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        return ((name, slot) for name, slot in self._slots.items() if name not in self._buffers)

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        return ((name, slot) for name, slot in self._slots.items() if name in self._buffers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
