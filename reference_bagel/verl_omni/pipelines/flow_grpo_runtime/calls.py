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
"""Calls of the denoiser in the rollout: recorded as they are made, for training to make again.

Nothing needs to be known of how the pipeline encodes a prompt or lays out a batch: the arguments are recorded as they
are before the call. One that stays the same is kept once, one that is the latents is taken from the trajectory, and
every other (the time of a step, say) is kept for each step. One that calls fill, such as a cache, holds what the
rollout's weights made of it: later calls get it as it was before the first, so that training computes it anew. What
the pipeline computes of its denoiser's configuration alone is computed by training, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import torch

from .carried import write_record
from .model import CallPlan
from .nodes import kept, merged
from .values import Table, copied, equal, keys_of, place_of, rows_of, same, tensors_of

# Column of the batch; see ``carried``.
COLUMN = "denoiser_calls"

_Place = tuple[int, int]


@dataclass(frozen=True)
class _Step:
    """Calls between two steps, how many predictions each made, and which is which: ``(call, row)``.

    ``free`` elements of the latents take part in the step; None where all do.
    """

    calls: list[dict[str, Any]]
    predictions: list[int]
    conditional: _Place
    unconditional: tuple[_Place, ...] | None
    free: torch.Tensor | None


@dataclass
class _Changed:
    """Something that a call changed: as it was before, as the call left it, and the step in which that was."""

    value: Any
    first: Any
    after: Any
    step: int


class CallRecorder:
    """Records, in the rollout, the calls of one module.

    Args:
        plan: how the pipeline calls it.
    """

    def __init__(self, plan: CallPlan) -> None:
        self.plan = plan
        self._active = False
        self._dtype = torch.float32
        self._autocast: torch.dtype | None = None
        self._calls: list[tuple[dict[str, Any], Any]] = []
        self._steps: list[_Step] = []
        self._step = 0
        self._changed: dict[int, _Changed] = {}  # by identity; the objects are held, so that none is made anew
        self._made: dict[int, torch.Tensor] = {}  # what calls made beside their prediction, by place in memory
        self._names: set[str] = set()
        self._firsts: list[dict[str, Any]] = []  # the calls of the first step
        self._tables: Mapping[str, Any] = {}

    def watch(
        self,
        module: torch.nn.Module,
        beside: Callable[[], dict[str, Any]] | None = None,
        tables: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the calls of ``module`` from now on.

        Args:
            module: the denoiser.
            beside: says what a call reads beside its arguments, under the names of arguments.
            tables: what the pipeline computes of the denoiser's configuration alone, by name; such arguments are not
                carried.
        """
        method = self.plan.method
        signature = inspect.signature(getattr(type(module), method))
        self._tables = tables or {}
        self._dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
        places: set[int] = set()  # where a call's arguments lie

        def calling(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], ...]:
            values = _by_name(signature, module, args, kwargs)
            values |= beside() if beside is not None else {}
            places.clear()
            places.update(map(place_of, tensors_of(values)))
            both = {name: self._before(name, value) for name, value in values.items()}
            return (
                values,
                {n: recorded for n, (recorded, _) in both.items()},
                {n: state for n, (_, state) in both.items()},
            )

        def called(values: dict[str, Any], recorded: dict[str, Any], states: dict[str, Any], output: Any) -> None:
            device = next((p.device.type for p in module.parameters()), "cpu")
            self._autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
            for name, value in values.items():
                self._compare(name, value, recorded[name], states[name])
            made = [*tensors_of(values), *(tensors_of(output[1:]) if isinstance(output, tuple) else ())]
            self._made |= {place_of(tensor): tensor for tensor in made if place_of(tensor) not in places}
            self._calls.append((recorded, output))

        if method == "forward":
            given: list[Any] = []

            def before(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                given[:] = calling(args, kwargs) if self._active else ()

            def after(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
                if self._active:
                    called(given[0], given[1], given[2], output)

            module.register_forward_pre_hook(before, with_kwargs=True)
            module.register_forward_hook(after, with_kwargs=True)
            return
        own = getattr(module, method)

        def watched(*args: Any, **kwargs: Any) -> Any:
            if not self._active:
                return own(*args, **kwargs)
            values, recorded, states = calling(args, kwargs)
            output = own(*args, **kwargs)
            called(values, recorded, states, output)
            return output

        setattr(module, method, watched)

    def _before(self, name: str, value: Any) -> tuple[Any, Any]:
        """What is recorded of an argument, and what it is: they differ where an earlier call changed it."""
        changed = self._changed.get(id(value))
        if changed is not None and same(changed.after, value):
            return changed.first, changed.after
        if isinstance(value, Mapping):
            both = {key: self._before(name, item) for key, item in value.items()}
            return {key: one for key, (one, _) in both.items()}, {key: other for key, (_, other) in both.items()}
        if isinstance(value, list | tuple):
            parts = [self._before(name, item) for item in value]
            kind = list if isinstance(value, list) else tuple
            return kind(one for one, _ in parts), kind(other for _, other in parts)
        if isinstance(value, torch.Tensor):
            if value.numel() and id(value) not in self._changed and place_of(value) in self._made:
                raise NotImplementedError(
                    f"the denoiser's {name} is what an earlier call returned, made of the rollout's weights: training"
                    " cannot compute it anew"
                )
            value = value.detach().clone()
        return value, value

    def _compare(self, name: str, value: Any, recorded: Any, state: Any) -> None:
        """Note what a call changed of an argument: it is recorded as it was before.

        Raises:
            NotImplementedError: a later step changes it once more, so that calls rest on each other.
        """
        if same(state, value):
            return
        held = isinstance(value, Mapping | list | tuple) and isinstance(recorded, Mapping | list | tuple)
        if held and keys_of(value) == keys_of(state) == keys_of(recorded):
            for key in keys_of(value):
                self._compare(name, value[key], recorded[key], state[key])
            return
        changed = self._changed.get(id(value))
        if changed is not None and state is changed.after and changed.step != self._step:
            raise NotImplementedError(
                f"the denoiser changes its {name} in one step after the other: calls rest on each other, and training"
                " cannot make one alone"
            )
        if isinstance(value, torch.Tensor):
            self._made[place_of(value)] = value  # its views hold what the call wrote
        self._changed[id(value)] = _Changed(value, recorded, copied(value), self._step)
        self._names.add(name)

    def begin(self, *, active: bool) -> None:
        """Start a trajectory; without ``active`` nothing is recorded."""
        self._active = active
        self._forget()

    def _forget(self) -> None:
        self._calls, self._steps, self._step = [], [], 0
        self._changed, self._made, self._names = {}, {}, set()

    def step(
        self,
        latents: torch.Tensor,
        given: torch.Tensor,
        guide: Callable[..., torch.Tensor],
        *,
        keep: bool,
        free: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """End the calls of one step.

        Args:
            latents: ``(1, …)`` float32 latents at which the denoiser was called.
            given: velocity that the pipeline takes the step with, shape of ``latents``.
            guide: what training makes of the conditional and the unconditional prediction (or None) of this step; of
                ``(N, 1, …)`` others where the plan knows of several.
            keep: whether the step belongs to the trajectory.
            free: True for elements of the latents that take part in the step; None where all do.

        Returns:
            The velocity to take the step with: what training will make of the predictions, in float32 where the
            pipeline combines them in its own dtype; ``given`` where nothing is recorded.

        Raises:
            RuntimeError: the pipeline's velocity is not what training would compute from the same predictions.
        """
        calls, self._calls = self._calls, []
        self._step += 1
        if self._active and self._step == 1:
            self._firsts = [values for values, _ in calls]
        if not self._active or not keep:
            return given
        if not calls:
            raise RuntimeError("the pipeline took a step without calling its denoiser: switch off what skips calls")
        if self.plan.first is not None:
            if len(calls) != len(self._firsts):
                counts = f"{len(self._firsts)} calls in its first step and {len(calls)} in a later one"
                raise RuntimeError(f"the pipeline made {counts}")
            calls = [(_as_first(first, values), out) for first, (values, out) in zip(self._firsts, calls, strict=True)]
        made = [rows_of(output, latents, self.plan.output) for _, output in calls]
        rows = {(i, j): row for i, found in enumerate(made) for j, row in enumerate(found)}
        conditional, unconditional, velocity = self._branches(rows, given, guide)
        seen = self._steps[-1].calls if self._steps else []
        arguments: list[dict[str, Any]] = []
        for index, (values, _) in enumerate(calls):
            before = [*seen[index : index + 1], *arguments]
            tables = {n: Table(t) for n, v in values.items() for t, table in self._tables.items() if same(table, v)}
            rest = {n: kept(n, v, [b.get(n) for b in before], latents) for n, v in values.items() if n not in tables}
            arguments.append({**rest, **tables})
        if free is not None and self._steps and (last := self._steps[-1].free) is not None and equal(last, free):
            free = last
        self._steps.append(_Step(arguments, list(map(len, made)), conditional, unconditional, free))
        return velocity

    def _branches(
        self, rows: Mapping[_Place, torch.Tensor], given: torch.Tensor, guide: Callable[..., torch.Tensor]
    ) -> tuple[_Place, tuple[_Place, ...] | None, torch.Tensor]:
        """Find the predictions of which training makes the velocity that the pipeline takes its step with, and it."""
        fewest, most = self.plan.others
        ways: list[tuple[_Place, tuple[_Place, ...] | None]] = []
        if len(rows) == 1:
            ways = [(next(iter(rows)), None)]
        elif fewest + 1 <= len(rows) <= most + 1:
            ways = [(way[0], way[1:]) for way in permutations(rows)]
        half = any(row.dtype in (torch.float16, torch.bfloat16) for row in rows.values())
        limit = (2e-2 if half else 1e-4) * float(given.float().norm().clamp_min(1e-12))
        found = []
        for a, others in ways:
            unconditional = None if others is None else torch.stack([rows[place].float() for place in others])
            if unconditional is not None and most == 1:
                unconditional = unconditional[0]
            velocity = guide(rows[a].float(), unconditional)
            found.append((float((velocity - given.float()).norm()), a, others, velocity))
        found.sort(key=lambda entry: entry[0])
        if not found or not found[0][0] <= limit:
            raise RuntimeError(
                f"the pipeline called its denoiser for {len(rows)} predictions and takes its step with a velocity that"
                " guide() does not make of them: guidance, its scale or the sign of the velocity differ from training's"
            )
        return found[0][1:]

    def finish(self, guidance: Mapping[str, Any]) -> torch.Tensor | None:
        """Return the recorded calls and their guidance.

        Returns:
            ``(N,)`` uint8 on the CPU, see ``carried``; None where nothing was recorded.
        """
        steps, active, names = self._steps, self._active, sorted(self._names)
        self._active = False
        self._forget()
        if not active or not steps:
            return None
        nodes = []
        for index in range(max(len(step.calls) for step in steps)):
            taken = [step.calls[index] if index < len(step.calls) else None for step in steps]
            first = next(call for call in taken if call is not None)
            nodes.append(merged([first if call is None else call for call in taken]))
        return write_record(
            {
                "calls": nodes,
                "predictions": [step.predictions for step in steps],
                "branches": [(step.conditional, step.unconditional) for step in steps],
                "dtype": self._dtype,
                "autocast": self._autocast,
                "changed": names,
                "guidance": dict(guidance),
                "free": [step.free for step in steps],
            }
        )


def _by_name(
    signature: inspect.Signature, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    bound = signature.bind(module, *args, **kwargs)
    values = dict(list(bound.arguments.items())[1:])
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            values.update(values.pop(name, {}))
        elif parameter.kind is parameter.VAR_POSITIONAL and values.pop(name, ()):
            raise NotImplementedError(f"{type(module).__name__} was called with *{name}, which have no names to carry")
    return values


def _as_first(first: Any, value: Any) -> Any:
    """An argument of a later call for a call that computes all of it anew, as the first one did.

    Later calls rest on what the first one left in the module, and are given a part of the sequence. What has the form
    that it had at first (the latents, their time) is the step's own; what has another form says which part that is,
    and is taken from the first call.
    """
    if isinstance(first, torch.Tensor) and isinstance(value, torch.Tensor):
        alike = first.shape == value.shape and first.is_floating_point() == value.is_floating_point()
        return value if alike else first
    if isinstance(first, dict) and isinstance(value, dict):
        return {key: _as_first(item, value.get(key)) for key, item in first.items()}
    if isinstance(first, list | tuple) and isinstance(value, list | tuple) and len(first) == len(value):
        return type(first)(_as_first(*pair) for pair in zip(first, value, strict=True))
    return first
