"""What keeps float32 where the model computes in bfloat16: what the rollout records, and tables such as RoPE's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.verify.rollout.check import Check, Measurement

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest
    from scaffold.verify.rollout.engine_side.trajectory import Trajectory

ORDER = 5
DTYPE = "bfloat16"
RECORDED = Check(
    "rollout-bf16-recorded",
    "With a bfloat16 model, the latents, timesteps and log-probs that a rollout records are float32",
    0,
    "tensors",
    (13, 33),
)
TABLES = Check(
    "rollout-bf16-tables",
    "With a bfloat16 model, no table that training multiplies by, RoPE's say, is less precise than the rollout's",
    0,
    "tables",
    (13,),
)
CHECKS = (RECORDED, TABLES)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """One rollout and its recomputation, both traced."""
    from scaffold.verify.rollout.engine_side import recorder, tables

    # Between the first step and the last there is the denoiser alone, without what encodes the prompt.
    with recorder.steps() as taken, tables.Trace(when=lambda: bool(taken)) as theirs:
        sample = bench.roll_out(bench.recipe, bench.texts[:1])[0]
    wrong = list(_rounded(sample))
    told = "; ".join(wrong) or f"{int(sample.latents.shape[0])} latents, {sample.steps} timesteps, log-probs"
    yield Measurement(RECORDED.id, float(len(wrong)), told, floor=0.0)
    cast = bool(bench.task.facts.get("half_module"))
    training = bench.training if cast else bench.training.with_own_buffers(bench.recipe)
    batch = training.micro_batch([sample], [sample.token_ids])
    with tables.Trace(_tensors(batch), Path(bench.task.root, *bench.task.package.split("."))) as ours:
        training.recompute_batch(batch, bench.recipe)
    coarse = [
        f"{table.place or 'a table'} computes with {len(table.values)} numbers in {_name(table.dtype)} that the"
        f" rollout has in {_name(other.dtype)}, {apart:.1e} apart: make that table in float32"
        f"{', in no buffer, which model_dtype=bfloat16 casts' if cast else ''}"
        for table, other, apart in tables.less_precise(ours.found, theirs.found)
    ]
    told = "; ".join(coarse) or f"{len(ours.found)} tables, of the rollout {len(theirs.found)}"
    unseen = not theirs.found or not ours.found
    yield Measurement(TABLES.id, None if unseen else float(len(coarse)), told, floor=0.0, skipped=unseen)


def _rounded(sample: Trajectory) -> Iterator[str]:
    """What is recorded in half precision, or holds numbers that have been there."""
    import torch

    for name in ("latents", "timesteps", "log_probs"):
        value = getattr(sample, name)
        if value is None:
            continue
        if value.dtype != torch.float32:
            yield (
                f"the rollout records {name} in {_name(value.dtype)}: training scores other numbers than the scheduler"
                " gave; record float32, before any cast to the model's dtype"
            )
        elif name == "latents" and bool((value == value.bfloat16().float())[1:].all()):
            yield "the recorded latents are float32 of bfloat16 numbers: record them before the cast to the model's"


def _tensors(batch: Any) -> list[Any]:
    import torch

    return [value for value in batch.values() if isinstance(value, torch.Tensor)]


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
