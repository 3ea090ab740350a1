"""Calls of the denoiser in the rollout: recorded as they are made, for training to make again.

Nothing needs to be known of how the pipeline encodes a prompt or lays out a batch: the arguments are recorded as they
are before the call. One that stays the same is kept once, one that is the latents is taken from the trajectory, and
every other (the time of a step, say) is kept for each step. One that calls fill, such as a cache, holds what the
rollout's weights made of it: later calls get it as it was before the first, so that training computes it anew. What
the pipeline computes of its denoiser's configuration alone is computed by training, too.

What the pipeline makes of the predictions is recorded by a tape; see ``tape``.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .model import CallPlan
from .records import write_record
from .tape import Tape, where
from .tape_play import HALF, Leaf, Taped, TapeError, require_gradients, sources
from .values import Table, copied, equal, kept, keys_of, merged, parts_of, place_of, rows_of, same, start_of, tensors_of

logger = logging.getLogger(__name__)

# Column of the batch; see ``carried``.
COLUMN = "denoiser_calls"

# How far, relative to its norm, the velocity of a pipeline that computes in half precision may lie from float32's.
HALF_LIMIT = 2e-2

_Place = tuple[int, int]


@dataclass(frozen=True)
class _Step:
    """Calls between two steps, how many predictions each made, and what the pipeline made of these.

    ``free`` elements of the latents take part in the step; None where all do.
    """

    calls: list[dict[str, Any]]
    predictions: list[int]
    free: torch.Tensor | None
    taped: Taped


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
        self.tape = Tape()
        self._proven: set[str] = set()  # programs whose gradients were seen
        self._told: list[str] = []  # what was logged of state that is kept over steps
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
            values = by_name(signature, module, args, kwargs)
            values |= beside() if beside is not None else {}
            values = self.plan.samples_first(values)
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
            call: list[Any] = []

            def before(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                self.pause()
                call[:] = calling(args, kwargs) if self._active else ()

            def after(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
                if self._active:
                    called(call[0], call[1], call[2], output)
                    self._follow(output)

            module.register_forward_pre_hook(before, with_kwargs=True)
            module.register_forward_hook(after, with_kwargs=True)
            return
        own = getattr(module, method)

        def watched(*args: Any, **kwargs: Any) -> Any:
            if not self._active:
                return own(*args, **kwargs)
            self.pause()
            values, recorded, states = calling(args, kwargs)
            output = own(*args, **kwargs)
            called(values, recorded, states, output)
            self._follow(output)
            return output

        setattr(module, method, watched)

    def pause(self) -> None:
        """Follow no prediction: the denoiser runs, or the step is taken."""
        self.tape.pause()

    def between(self) -> None:
        """Follow what the pipeline keeps of the predictions of this step for later ones."""
        if self._active:
            self.tape.follow_on()

    def close(self) -> None:
        """Forget an unfinished trajectory; raises nothing."""
        self._active = False
        self.tape.close()

    def _follow(self, output: Any) -> None:
        """Watch what the pipeline makes of a prediction."""
        for tensor in tensors_of(output if isinstance(output, torch.Tensor | Mapping | list | tuple) else vars(output)):
            self.tape.refuse(tensor, "the pipeline steps with what its denoiser returns beside the prediction")
        parts, call = parts_of(output, self.plan.output), len(self._calls) - 1
        # As they are now: the pipeline may change them in place.
        self._calls[call] = self._calls[call][0], [part.detach().clone() for part in parts]
        for leaf, part in enumerate(parts):
            self.tape.source(part, call, leaf)
        self.tape.resume()

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
        nested = isinstance(value, Mapping | list | tuple) and isinstance(recorded, Mapping | list | tuple)
        if nested and keys_of(value) == keys_of(state) == keys_of(recorded):
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
        self.tape.close()

    def step(
        self,
        latents: torch.Tensor,
        pipeline_velocity: torch.Tensor,
        *,
        keep: bool,
        free: torch.Tensor | None = None,
        target: torch.Tensor | None = None,
        sign: int = 1,
    ) -> torch.Tensor:
        """End the calls of one step.

        Args:
            latents: ``(1, …)`` float32 latents at which the denoiser was called.
            pipeline_velocity: velocity that the pipeline takes the step with, shape of ``latents``.
            keep: whether the step belongs to the trajectory.
            free: True for elements of the latents that take part in the step; None where all do.
            target: the tensor that the pipeline takes the step with, itself; ``pipeline_velocity`` where it is that.
            sign: of ``pipeline_velocity`` in it.

        Returns:
            The velocity to take the step with: what training will make of the predictions, in float32 where the
            pipeline combines them in its own dtype; ``pipeline_velocity`` where nothing is recorded.

        Raises:
            RuntimeError: the denoiser was not called, or not as often as in the first step.
            TapeError: it is made of them in a way that training cannot follow.
        """
        self.pause()
        calls, self._calls = self._calls, []
        self._step += 1
        if self._active and self._step == 1:
            self._firsts = [values for values, _ in calls]
        if not self._active or not keep:
            self.tape.clear()
            return pipeline_velocity
        if not calls:
            raise RuntimeError(
                f"the pipeline takes a step without calling its denoiser{where()}, with what a step before predicted,"
                " say: training has nothing to compute in it; switch off what skips calls"
            )
        if self.plan.first is not None:
            if len(calls) != len(self._firsts):
                counts = f"{len(self._firsts)} calls in its first step and {len(calls)} in a later one"
                raise RuntimeError(f"the pipeline made {counts}")
            calls = [(_as_first(first, values), out) for first, (values, out) in zip(self._firsts, calls, strict=True)]
        outputs = [output for _, output in calls]
        taped = self._cut(outputs, latents, pipeline_velocity if target is None else target, sign)
        try:
            made, velocity = self._proved(taped, outputs, latents, pipeline_velocity)
        except TapeError:
            if not any(start_of(part, latents) for output in outputs for part in output):
                raise
            taped = replace(taped, front=True)
            made, velocity = self._proved(taped, outputs, latents, pipeline_velocity)
        self.tape.clear()
        seen = self._steps[-1].calls if self._steps else []
        arguments: list[dict[str, Any]] = []
        for index, (values, _) in enumerate(calls):
            before = [*seen[index : index + 1], *arguments]
            tables = {n: Table(t) for n, v in values.items() for t, table in self._tables.items() if same(table, v)}
            own = {n: kept(n, v, [b.get(n) for b in before], latents) for n, v in values.items() if n not in tables}
            arguments.append({**own, **tables})
        if free is not None and self._steps and (last := self._steps[-1].free) is not None and equal(last, free):
            free = last
        self._steps.append(_Step(arguments, list(map(len, made)), free, taped))
        return velocity

    def _cut(
        self, outputs: Sequence[list[torch.Tensor]], latents: torch.Tensor, target: torch.Tensor, sign: int
    ) -> Taped:
        """The tape of this step; a constant that is its latents stays behind, for the trajectory has them."""
        program, constants = self.tape.cut(target)
        leaves: dict[Leaf, tuple[tuple[int, ...], int, int]] = {}
        for call, output in enumerate(outputs):
            first = 0
            for leaf, tensor in enumerate(output):
                end = first + len(rows_of(tensor, latents))
                leaves[call, leaf] = tuple(tensor.shape), first, end
                first = end
        constants = [_constant(constant, latents) for constant in constants]
        large = [c for c in constants if isinstance(c, torch.Tensor) and c.numel() == latents.numel() > 1]
        if self.tape.blind and large and not program["earlier"]:
            self.tape.say("numbers as many as the latents take part, which may be of steps before")
        return Taped(program, constants, {place: leaves[place] for place in sources(program)}, sign)

    def _proved(
        self,
        taped: Taped,
        outputs: Sequence[list[torch.Tensor]],
        latents: torch.Tensor,
        pipeline_velocity: torch.Tensor,
    ) -> tuple[list[list[torch.Tensor]], torch.Tensor]:
        """Rows of the rollout's own predictions, and the velocity that the tape makes of them: it is the pipeline's.

        Bit for bit, but where the pipeline computes in half precision: training does so in float32.
        """
        made_rows = [rows_of(output, latents, front=taped.front) for output in outputs]
        rows = {(i, j): row for i, found in enumerate(made_rows) for j, row in enumerate(found)}
        own = {place: rows[place] for place in taped.places}
        made, pipeline_velocity = taped.velocity(own, latents), pipeline_velocity.float().reshape(latents.shape)
        half = self.tape.half or any(row.dtype in HALF for row in own.values())
        apart = float((made - pipeline_velocity).norm()) / float(pipeline_velocity.norm().clamp_min(1e-12))
        if not (torch.equal(made, pipeline_velocity) or (half and apart <= HALF_LIMIT)):
            raise TapeError(
                f"the functions of torch that the pipeline calls make of its predictions what is {apart:.2g} (relative)"
                " off from what it steps with: something else took part (a kernel, numpy)"
            )
        if (text := repr(taped.program)) not in self._proven:
            require_gradients(taped.program, taped.constants, taped.assembled(own), latents)
            self._proven.add(text)
        return made_rows, made

    def finish(self, guidance: Mapping[str, Any], levels: torch.Tensor | None = None) -> torch.Tensor | None:
        """Return the recorded calls and their guidance.

        Args:
            guidance: settings that the request was guided with.
            levels: ``(S + 1,)`` noise levels of all steps.

        Returns:
            ``(N,)`` uint8 on the CPU, see ``carried``; None where nothing was recorded.
        """
        steps, active, names, state = self._steps, self._active, sorted(self._names), list(self.tape.state)
        self._active = False
        self._forget()
        if not active or not steps:
            return None
        if state and state != self._told:
            self._told = state
            logger.warning("carried as constants, where gradients end: %s", "; ".join(state))
        nodes = []
        for index in range(max(len(step.calls) for step in steps)):
            taken = [step.calls[index] if index < len(step.calls) else None for step in steps]
            first = next(call for call in taken if call is not None)
            nodes.append(merged([first if call is None else call for call in taken]))
        return write_record(
            {
                "calls": nodes,
                "predictions": [step.predictions for step in steps],
                "dtype": self._dtype,
                "autocast": self._autocast,
                "changed": names,
                "guidance": dict(guidance),
                "free": [step.free for step in steps],
                "state": state,
                **_written([step.taped for step in steps], levels),
            }
        )


def _written(steps: Sequence[Taped], levels: torch.Tensor | None) -> dict[str, Any]:
    """Tapes as they are carried: a program once, equal tensors once."""
    programs: list[Any] = []
    tapes = []
    distinct: list[torch.Tensor] = []
    for taped in steps:
        frame = {"program": taped.program, "leaves": list(taped.leaves.items()), "sign": taped.sign}
        frame |= {"front": True} if taped.front else {}
        if frame not in programs:
            programs.append(frame)
        constants = []
        for value in taped.constants:
            if isinstance(value, torch.Tensor):
                again = next((other for other in distinct if equal(other, value)), None)
                distinct += [value] if again is None else []
                value = value if again is None else again
            constants.append(value)
        tapes.append((programs.index(frame), constants))
    return {"programs": programs, "tapes": tapes, "levels": levels}


def _constant(value: Any, latents: torch.Tensor) -> Any:
    if isinstance(value, torch.Tensor) and value.numel() == latents.numel() > 1:
        if torch.equal(value.reshape(-1), latents.to(value.dtype).reshape(-1)):
            return "latents", tuple(value.shape), value.dtype
    return value


def by_name(
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
