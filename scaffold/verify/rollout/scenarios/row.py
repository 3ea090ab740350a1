"""What a rollout returns, as verl-omni's own code hands it to training: through v0's batch, through v1's queue."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from scaffold.verify.rollout.check import LOG_PROB, Check, Measurement, NotApplicable

if TYPE_CHECKING:
    from pathlib import Path

    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest
    from scaffold.verify.rollout.engine_side.trajectory import Trajectory

ORDER = 51
DTYPE = "float32"
SAME = "gives each of two samples of unlike length the log-probs that it has alone"
BATCH = Check("rollout-batch-v0", f"Training on what v0's agent loop concatenates {SAME}", LOG_PROB, "absolute", (28,))
ROW = Check("rollout-row-v1", f"Training on the rows of v1's queue {SAME}", LOG_PROB, "absolute", (28,))
MIXED = Check(
    "rollout-row-mixed",
    "Rows of several training steps, with windows of their own, train as each does alone",
    LOG_PROB,
    "absolute",
    (2, 28),
)
CHECKS = (BATCH, ROW, MIXED)
WINDOW = 2


def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
    """Send samples of the longest and the shortest prompt, of an edit with images of unlike sizes, through both."""
    from scaffold.verify.rollout.engine_side import queue_rows

    if bench.table is not None and (length := bench.embedded) is not None and length < _width(bench):
        raise NotApplicable(
            f"every prompt is embedded in {length} tokens, in a tiny checkpoint fewer than the {_width(bench)} that"
            " VeRL-Omni pads to with this package's settings"
        )
    batching = f"{queue_rows.BATCHING.replace('.', '/')}.py"
    try:
        checkout = queue_rows.require(bench.task.library, batching)
    except NotApplicable as reason:
        yield from (Measurement(check.id, None, str(reason), skipped=True) for check in CHECKS)
        return
    samples = _unlike(bench, [bench.recipe] * 2)
    yield _compared(bench, BATCH, samples, lambda both: queue_rows.batch_of(both, bench.training.column, _width(bench)))
    try:
        queue_rows.require(bench.task.library, queue_rows.READER)
    except NotApplicable as reason:
        yield from (Measurement(check.id, None, str(reason), skipped=True) for check in (ROW, MIXED))
        return
    with queue_rows.under_queue():
        yield from _rows(bench, checkout)


def _rows(bench: EngineUnderTest, checkout: Path) -> Iterator[Measurement]:
    from scaffold.verify.rollout.engine_side import queue_rows

    samples = _unlike(bench, [bench.recipe] * 2)
    yield _compared(bench, ROW, samples, lambda both: queue_rows.rows_of(both, checkout, [1, 1], _width(bench)))
    if samples[0].steps <= WINDOW:
        yield Measurement(MIXED.id, None, f"the schedule has no more than the {WINDOW} steps of a window", skipped=True)
        return
    windows = [
        replace(bench.recipe, sde_window_size=WINDOW, sde_window_range=(begin, begin + WINDOW), global_steps=begin + 1)
        for begin in (0, samples[0].steps - WINDOW)
    ]
    mixed = _unlike(bench, windows)
    yield _compared(
        bench,
        MIXED,
        mixed,
        lambda both: queue_rows.rows_of(both, checkout, [w.global_steps for w in windows], _width(bench)),
    )


def _width(bench: EngineUnderTest) -> int:
    return int(bench.task.facts["embedded"])


def _unlike(bench: EngineUnderTest, recipes: Sequence[Any]) -> list[Trajectory]:
    """Two samples whose prompts differ in length, and whose images, where requests bring any, in size.

    Where a pipeline makes its image in the size of the one that a request brings, no batch holds both samples. Images
    then come as the package's own agent loop sends them, which can bring them to the size asked for.
    """

    found = _rolled_out(bench, recipes)
    if len({sample.latents.shape for sample in found}) > 1 and (bring := sent_by_loop(bench.task.package)) is not None:
        with bench.engine.brought_by(bring):
            found = _rolled_out(bench, recipes)
    return found


def _rolled_out(bench: EngineUnderTest, recipes: Sequence[Any]) -> list[Trajectory]:
    texts = sorted(bench.texts, key=len)
    found = []
    for number, (recipe, text) in enumerate(zip(recipes, (texts[-1], texts[0]), strict=True)):
        with bench.engine.picture_of(1 + number):
            found += bench.roll_out(recipe, [text], seed=7 + number)
    return found


def _compared(
    bench: EngineUnderTest, check: Check, samples: list[Trajectory], given: Callable[[list[Trajectory]], Any]
) -> Measurement:
    """The largest change of a log-prob between what training is given of both, and each by itself."""
    alone = [bench.training.recompute([sample], bench.recipe).log_probs[0] for sample in samples]
    try:
        batch = given(samples)
        together = bench.training.recompute_batch(batch, bench.recipe).log_probs
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        return Measurement(check.id, None, f"training stops: {type(error).__name__}: {text}")
    apart = max(float((row - one).abs().max()) for row, one in zip(together, alone, strict=True))
    lost = sorted(set(samples[0].extra) - set(batch.keys()))
    told = f"columns {', '.join(sorted(set(samples[0].extra) - set(lost))) or 'none'}"
    return Measurement(check.id, apart, f"{told}; dropped: {', '.join(lost)}" if lost else told, floor=2**-23)


def sent_by_loop(package: str) -> Callable[[dict[str, Any], tuple[int, int]], dict[str, Any]] | None:
    """What makes of a request's images those that the loop sends, for a width and height asked for.

    None where the package has no loop, or one that does not follow the size that is asked for.

    Args:
        package: dotted name of the package.
    """
    if importlib.util.find_spec(f"{package}.agent_loop") is None:
        return None
    own = vars(importlib.import_module(f"{package}.agent_loop"))
    edits = next((kind for kind in own.values() if getattr(kind, "edits", False)), None)
    read = own.get("read_media") if edits is None else edits.read_media
    if read is None or "size" not in inspect.signature(read).parameters:
        return None

    def bring(files: dict[str, Any], size: tuple[int, int]) -> dict[str, Any]:
        with TemporaryDirectory() as folder:
            paths = {kind: str(Path(folder, f"{kind}.png")) for kind in files if kind == "image"}
            for kind, path in paths.items():
                files[kind].save(path)
            sent: dict[str, Any] = read({"inputs": json.dumps({**files, **paths})}, size=size)
        return sent

    return bring
