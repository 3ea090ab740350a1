"""Several requests of a rollout, each on its own way through the pipeline, with one forward pass a step for all."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .joint_forward import JointForward, Row
from .lockstep import Lockstep
from .results import failed


class Replaced(NamedTuple):
    """A call of the pipeline that is skipped, because its result is computed for all requests at once.

    Attributes:
        call: path of the method from the pipeline on.
        like: its argument that has the form of the result; empty where the result of the first request will do.
        ids: its argument that holds ids of a prompt, ``argument.key`` where it is a mapping; empty where none does.
    """

    call: str
    like: str = ""
    ids: str = ""


def roll_out_together(rollout: Any, singles: Sequence[Any], joint: JointForward) -> list[Any]:
    """Make requests, each as the rollout adapter makes one.

    Everything but the forward pass is done for each request by itself: its initial noise, its noise of the steps, its
    window, its guidance, its schedule, its log-probs, its picture. An error concerns its own request alone.

    Args:
        rollout: the adapter.
        singles: batches of one request.
        joint: computes the velocities.

    Returns:
        The results, in order.
    """
    lockstep: Lockstep[Row, Tensor, Any] = Lockstep(joint.velocities)
    real = threading.local()  # whether the calls are made all the same, to compare
    kept: dict[str, Any] = {}
    compares = not joint.compared
    if any(rollout.brings_image(single.prompts[0]) for single in singles):
        rollout.reference_recorder()  # its hooks are shared

    def member(single: Any, index: int) -> Any:
        own = copy.copy(rollout)
        scheduler = copy.copy(rollout.sde_scheduler)
        scheduler.inner = type(scheduler.inner)()
        for name, value in list(vars(own).items()):
            if value is rollout.sde_scheduler:
                setattr(own, name, scheduler)
        real.now = compares and index == 0

        def velocity(latents: Tensor, level: float, engine: Tensor) -> Tensor:
            size = int(single.sampling_params.height), int(single.sampling_params.width)
            told, real.now = engine if real.now else None, False
            return lockstep.ask(Row(latents, level, own.finish_inputs(), own.asked_guidance, size, told))

        scheduler.joint = velocity
        with contextlib.ExitStack() as stack:
            for replaced in (entry for entry in calls if "." not in entry.call):
                stack.enter_context(_replaced(own, replaced, rollout._prompt.note, real, kept))
            return own.roll_out(single, single.sampling_params)

    calls = rollout.rollout_plan.replaced
    with contextlib.ExitStack() as stack:
        for replaced in (entry for entry in calls if "." in entry.call):
            stack.enter_context(_replaced(rollout, replaced, rollout._prompt.note, real, kept))
        runs = [functools.partial(member, single, index) for index, single in enumerate(singles)]
        results = lockstep.run(runs)
    return [failed(result) if isinstance(result, Exception) else result for result in results]


@contextlib.contextmanager
def _replaced(
    holder: Any, entry: Replaced, note: Callable[[Tensor], None], real: threading.local, kept: dict[str, Any]
) -> Iterator[None]:
    """Within the block the call is made if ``real``; otherwise only the ids that it would embed are recorded."""
    path, _, name = entry.call.rpartition(".")
    holder = attrgetter(path)(holder) if path else holder
    original = getattr(holder, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if getattr(real, "now", False) or not (entry.like or entry.call in kept):
            result = original(*args, **kwargs)
            if not entry.like:
                kept[entry.call] = result
            return result
        bound = signature.bind(*args, **kwargs).arguments
        if entry.ids:
            argument, _, key = entry.ids.partition(".")
            note(bound[argument][key] if key else bound[argument])
        return torch.zeros_like(bound[entry.like]) if entry.like else kept[entry.call]

    setattr(holder, name, call)
    try:
        yield
    finally:
        delattr(holder, name)
