"""What ``verify.toml`` declares, against what the real pipeline did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scaffold.verify.declared import PROMPT, TIMES, Declared
from scaffold.verify.rollout.check import Check, Measurement, NotApplicable

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest
    from scaffold.verify.rollout.engine_side.trajectory import Trajectory

ORDER = 5
DTYPE = "float32"
CHECK = Check("rollout-declared", "What verify.toml declares is what the real pipeline hands over", 0, "lines")
CHECKS = (CHECK,)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Compare latents, timesteps and columns of one rollout with the table.

    Raises:
        NotApplicable: the package has none.
    """
    if bench.table is None:
        raise NotApplicable("the package has no verify.toml")
    wrong = list(_wrong(bench.table, bench.first[0]))
    length = bench.embedded
    if length is not None and PROMPT in bench.table.columns.get("prompt_embeds", ()):
        wrong.append(
            f"{bench.table.place} columns.prompt_embeds has '{PROMPT}', the rollout hands over {length} for all"
        )
    told = "; ".join(wrong) or f"latents, time and {len(bench.table.columns)} columns are as declared"
    yield Measurement(CHECK.id, float(len(wrong)), told, floor=0.0)


def _wrong(table: Declared, sample: Trajectory) -> Iterator[str]:
    latents = tuple(sample.latents.shape[1:])
    channel = 0 if len(latents) > 2 else -1
    declared = table.latents or ()
    if len(latents) != len(declared) or latents[channel] != declared[channel]:
        yield f"{table.place} latents = {list(declared)}, the rollout records {list(latents)}"
    for timestep, sigma in zip(sample.timesteps, sample.sigmas, strict=False):
        if sigma is None or table.time is None:
            continue
        expected = TIMES[table.time](sigma)
        if abs(float(timestep) - expected) > 1e-4 * max(1.0, abs(expected)):
            records = f"of noise level {sigma:.4g} the rollout records {float(timestep):.6g}"
            yield f"{table.place} time = {table.time!r}, {records}"
            break
    for name, shape in table.columns.items():
        value = sample.extra.get(name)
        found = None if value is None else list(getattr(value, "shape", ()))
        if found is None:
            yield f"{table.place} columns.{name} is declared, the rollout hands over no such tensor"
        elif len(found) != len(shape) or any(
            one != other for one, other in zip(found[1:], shape[1:], strict=True) if other != PROMPT
        ):
            yield f"{table.place} columns.{name} = {list(shape)}, the rollout hands over {found}"
