# Copyright 2026 Bytedance Ltd. and/or its affiliates
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""A training module over the weights that the engine has loaded: parts of its tensors, copied nowhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .released import ReleasedWeights

Named = Iterable[tuple[str, Tensor]]


class Place(NamedTuple):
    """Where a tensor of the checkpoint stands in a parameter of the engine."""

    owner: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class _Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Reports every tensor that a copy writes to."""

    def __init__(self, tell: Callable[[Tensor], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tell = tell

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.copy_.default:
            self._tell(args[0])
        return result


@dataclass
class EngineViews:
    """Notes where the engine puts what it loads, and binds a training module to it.

    The engine fuses layers and renames them in its own way; where a tensor ends up is seen when it is copied there, so
    nothing has to be known of that. Views are taken anew at every binding: a push writes into the same tensors, a
    sleeping engine may have moved them.

    Attributes:
        pipeline: the engine's.
        weights: names of the checkpoint.
        prefix: what the engine puts before every name of it.
    """

    pipeline: nn.Module
    weights: ReleasedWeights
    prefix: str = ""

    def __post_init__(self) -> None:
        self.places: dict[str, Place] = {}

    @contextlib.contextmanager
    def watched(self) -> Iterator[Callable[[Named], Named]]:
        """Inside the block hand what the function makes of names and tensors to the engine, instead of these."""
        tensors = {**dict(self.pipeline.named_parameters()), **dict(self.pipeline.named_buffers())}
        owners = {t.untyped_storage().data_ptr(): (name, t) for name, t in tensors.items() if t.numel()}
        current: list[tuple[str, tuple[int, ...]]] = []

        def note(written: Tensor) -> None:
            owner = owners.get(written.untyped_storage().data_ptr()) if current else None
            if owner is None or tuple(written.shape) != current[0][1]:
                return
            offset = int(written.storage_offset()) - int(owner[1].storage_offset())
            self.places[current[0][0]] = Place(owner[0], offset, tuple(written.shape), tuple(written.stride()))

        def named(weights: Named) -> Named:
            for name, tensor in weights:
                current[:] = [(name.removeprefix(self.prefix), tuple(tensor.shape))]
                yield name, tensor
            current.clear()

        with _Copies(note):
            yield named

    def bind(self, module: nn.Module) -> None:
        """Let every parameter be the engine's; those that no checkpoint has stay.

        Raises:
            LookupError: the engine does not hold one of them in one piece.
        """
        tensors = {**dict(self.pipeline.named_parameters()), **dict(self.pipeline.named_buffers())}
        for name, parameter in list(module.named_parameters()):
            if name in self.weights.computed:
                continue
            rule, place, keys = self.weights.origin_of(name)
            parts = [self._view(key, tensors) for key in keys]
            if rule.op == "join":
                view = torch.cat(parts, dim=rule.axis)
            elif rule.op == "split":
                before = [module.get_parameter(target) for target in self.weights.rule_of(keys[0])[2][:place]]
                start = sum(part.shape[rule.axis] for part in before)
                view = parts[0].narrow(rule.axis, start, parameter.shape[rule.axis])
            else:
                view = parts[0]
            if view.shape != parameter.shape:
                raise LookupError(f"the engine's {name} is {tuple(view.shape)}, training's {tuple(parameter.shape)}")
            holder, _, leaf = name.rpartition(".")
            module.get_submodule(holder)._parameters[leaf] = nn.Parameter(view, requires_grad=False)

    def _view(self, key: str, tensors: dict[str, Tensor]) -> Tensor:
        place = self.places.get(key)
        owner = None if place is None else tensors.get(place.owner)
        if place is None or owner is None:
            raise LookupError(f"the engine does not hold {key!r} in one piece")
        last = sum((size - 1) * step for size, step in zip(place.shape, place.stride, strict=True))
        start = owner.storage_offset() + place.offset
        if (start + last + 1) * owner.element_size() > owner.untyped_storage().nbytes():
            raise LookupError(f"the engine has changed {place.owner} after it was loaded")
        return owner.detach().as_strided(place.shape, place.stride, start)
