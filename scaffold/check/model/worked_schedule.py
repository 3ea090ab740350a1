"""The noise levels that an adapter puts into its scheduler, worked out for a small number of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from scaffold.check.model.arrays import Array, array_of
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.worked_out import OPAQUE, Bound, NotPlainError, RefusedError, Stub, Worked

STEPS = 9
PER_UNIT = 1000  # timesteps of diffusers count thousandths of the noise level
SCHEDULERS = ("FlowMatchSDEDiscreteScheduler", "FlowMatchEulerDiscreteScheduler")


class WorkedSchedule(NamedTuple):
    """What a scheduler holds after it was set up.

    Attributes:
        sigmas: the noise levels, the terminal one included.
        timesteps: what the steps are looked up by.
        entered: functions whose text was followed.
    """

    sigmas: list[float]
    timesteps: list[float]
    entered: list[FunctionModel]


def worked_schedule(adapter: ClassModel) -> WorkedSchedule | None:
    """Return what ``set_timesteps`` of an adapter puts into a scheduler; None where that is not plain."""
    method = adapter.method("set_timesteps")
    if method is None or method.is_abstract or len(method.positional) < 2:
        return None
    scheduler = flow_scheduler()
    work = Worked()
    settings = Stub({"pipeline": Stub({"num_inference_steps": STEPS})})
    try:
        work.call(Bound(method, None, adapter), scheduler, settings, *(OPAQUE for _ in method.positional[2:]))
    except (NotPlainError, RefusedError):
        return None
    sigmas, timesteps = scheduler.attributes.get("sigmas"), scheduler.attributes.get("timesteps")
    if not isinstance(sigmas, Array) or not isinstance(timesteps, Array) or sigmas.ndim != 1 or timesteps.ndim != 1:
        return None
    return WorkedSchedule(sigmas.values, timesteps.values, list(work.entered))


def close(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two rows of noise levels are the same but for rounding."""
    return len(one) == len(other) and all(
        abs(a - b) <= 1e-4 * max(1.0, abs(b)) for a, b in zip(one, other, strict=True)
    )


def flow_scheduler() -> Stub:
    """Return a stand-in for a flow-matching scheduler of diffusers that nothing was set up in yet."""
    config = Stub({"num_train_timesteps": PER_UNIT, "shift": 1.0, "use_dynamic_shifting": False})
    scheduler = Stub({"config": config, "shift": 1.0})

    def set_shift(shift: Any) -> None:
        scheduler.attributes["shift"] = shift

    def set_timesteps(
        num_inference_steps: Any = None, device: Any = None, sigmas: Any = None, mu: Any = None, timesteps: Any = None
    ) -> None:
        shift = scheduler.attributes["shift"]
        if sigmas is None or sigmas is OPAQUE or not isinstance(shift, (int, float)) or mu is not None:
            scheduler.attributes |= {"sigmas": OPAQUE, "timesteps": OPAQUE}
            return
        shifted = array_of(sigmas).map(lambda s: shift * s / (1 + (shift - 1) * s))
        given = shifted.map(lambda s: PER_UNIT * s) if timesteps is None else timesteps
        scheduler.attributes["timesteps"] = OPAQUE if given is OPAQUE else array_of(given)
        scheduler.attributes["sigmas"] = Array((len(shifted.values) + 1,), [*shifted.values, 0.0])

    scheduler.methods.update(set_shift=set_shift, set_timesteps=set_timesteps, set_begin_index=lambda *_: None)
    return scheduler
