"""What a rollout carried is of its pipeline, and not of the numbers that its own weights predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaffold.verify.rollout.check import LOG_PROB, Check, Measurement, NotApplicable

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest
    from scaffold.verify.rollout.engine_side.trajectory import Trajectory

ORDER = 91
DTYPE = "float32"
CHECK = Check(
    "rollout-other-weights",
    "What a rollout carried makes of other weights' predictions what the pipeline makes of them",
    LOG_PROB,
    "absolute",
)
CHECKS = (CHECK,)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Roll out with other weights, and recompute that with what the rollout before carried.

    A rollout agrees with itself even where a number that stands for a prediction was carried as a constant (numpy and
    kernels that torch does not see leave such). With the predictions of other weights that number is wrong.
    """
    if not bench.training.carries:
        raise NotApplicable("the package has formulas: nothing is carried")
    training = bench.training.copy()
    changed = training.change_trainable(bench.recipe)
    before = bench.first[:2]
    if any(program["program"]["earlier"] for record in records(bench, before) for program in record["programs"]):
        yield Measurement(CHECK.id, None, "steps rest on predictions of steps before, as constants", skipped=True)
        return
    try:
        bench.engine.sync(training.base_weights())
        samples = bench.roll_out(bench.recipe, bench.texts[:2])
    finally:
        bench.engine.sync(bench.training.base_weights())
    found = bench.compare(with_tapes_of(bench, samples, before), bench.recipe, training=training)
    value = float("inf") if found.problem else found.log_prob
    yield Measurement(CHECK.id, value, found.problem or f"{len(changed)} parameters changed, largest of log-probs")


def with_tapes_of(
    bench: EngineUnderTest, samples: Sequence[Trajectory], others: Sequence[Trajectory]
) -> list[Trajectory]:
    """Rollouts that say of their calls what others made of theirs."""
    records = bench.training.records()
    made = []
    for sample, other in zip(samples, others, strict=True):
        extra = dict(sample.extra)
        for name in extra:
            own, theirs = (_record(records, found.extra[name]) for found in (sample, other))
            if isinstance(own, dict) and "tapes" in own:
                block = records.write_record({**own, "programs": theirs["programs"], "tapes": theirs["tapes"]})
                extra[name] = block.numpy().tobytes() if isinstance(extra[name], bytes) else block
        made.append(replace(sample, extra=extra))
    return made


def records(bench: EngineUnderTest, samples: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """What rollouts carried of their calls, one record each."""
    records = bench.training.records()
    found = [_record(records, value) for sample in samples for value in sample.extra.values()]
    return [record for record in found if isinstance(record, dict) and "tapes" in record]


def _record(records: Any, value: Any) -> Any:
    import torch

    if isinstance(value, bytes):
        return records.read_record(torch.frombuffer(bytearray(value), dtype=torch.uint8))
    is_record = isinstance(value, torch.Tensor) and value.dtype == torch.uint8 and value.ndim == 1
    return records.read_record(value) if is_record else None
