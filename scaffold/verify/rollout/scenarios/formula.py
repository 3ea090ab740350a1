"""What the pipeline makes of its denoiser's predictions, as it was seen, for people to review."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from scaffold.files.formula import differences
from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.rollout.formula_file import SEEN
from scaffold.verify.rollout.scenarios.other_weights import records

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 9
DTYPE = "float32"
FORMULA = Check(SEEN, "The pipeline steps with the formula that formula.txt says, if it says one", 0, "lines")
CHECKS = (FORMULA,)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Read the formula of a rollout under the package's own settings off its tape."""
    if not bench.training.carries:
        raise NotApplicable("the package has written formulas: nothing is carried")
    record = records(bench, bench.first[:1])[0]
    lines = _lines(bench, record, bench.training.runtime("tape_text").formulas(record))
    value = differences(bench.task.facts.get("formula"), lines)
    yield Measurement(FORMULA.id, float(len(value)), "; ".join([*(f"not so before: {line}" for line in value), *lines]))


def _lines(bench: EngineUnderTest, record: dict[str, Any], found: list[tuple[str, list[int]]]) -> list[str]:
    settings = ", ".join(f"{name}={value:g}" for name, value in sorted(record["guidance"].items()) if value is not None)
    levels = [f"{float(level):.6g}" for level in record["levels"]]
    lines = [
        f"vllm-omni {bench.task.facts.get('engine') or 'of this run'}, {settings or 'no settings of guidance'}",
        f"{len(levels) - 1} steps, noise levels {', '.join(levels)}",
    ]
    for text, steps in found:
        lines.append(f"in {len(steps)} of {len(record['tapes'])} steps, from step {steps[0] + 1}:")
        lines += text.split("\n")
    return lines + [f"a constant, where its gradient ends: {kept}" for kept in record.get("state", ())]
