"""What the engine does with a result between the pipeline and the server that asked for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from scaffold.verify.rollout.check import Check, Measurement

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest

ORDER = 46
DTYPE = "float32"
CHECK = Check(
    "rollout-media",
    "The engine's last step takes what the adapter returns, and leaves the media and what training needs",
    0,
    "parts lost",
)
CHECKS = (CHECK,)


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Take a training request to the end of the engine."""
    output = bench.engine.answer(bench.prompts.chat(bench.texts[0]), bench.recipe.sampling(7))
    before, after = _parts(output.output), _parts(bench.engine.finished(output))
    lost = sorted(before - after)
    told = f"loses {', '.join(lost)}" if lost else f"leaves {', '.join(sorted(after)) or 'nothing'}"
    yield Measurement(CHECK.id, float(len(lost)), told, floor=0.0)


def _parts(result: Any) -> set[str]:
    """``media`` where there is any, and the names of what stands beside it."""
    if not (isinstance(result, Mapping) and isinstance(result.get("payload"), Mapping)):
        return set() if result is None else {"media"}
    metadata = result.get("metadata") or {}
    beside = {
        f"{group}.{name}"
        for group, entries in metadata.items()
        for name in (entries if isinstance(entries, Mapping) else ())
    }
    return beside | ({"media"} if any(value is not None for value in result["payload"].values()) else set())
