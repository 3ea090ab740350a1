"""Bytes and time of an image's recorded denoiser calls: as the runtime carries them, and as a pickle of torch's.

``python benchmarks/recorded_calls.py [REPEATS]`` makes records of the sizes that two released models have at their
recipes' sizes, two branches and two steps each, and prints bytes, and milliseconds for writing and for the reads that
an update makes of it: one each step with a pickle, one for all steps with the runtime's record.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "runtime/src"))

from flow_grpo_runtime.records import read_record, write_record

STEPS = 2
BF16 = torch.bfloat16
# Arguments beside latents and time: those of each branch, and those that all calls share.
MODELS: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]] = {
    "OmniGen2 1024x1024": ({"text_hidden_states": (1, 256, 2048), "text_attention_mask": (1, 256)}, {}),
    "WanS2V 480x832, 80 frames": (
        {"context": (1, 512, 4096), "audio": (1, 25, 1024, 80)},
        {"ref_latents": (1, 16, 1, 60, 104), "motion_latents": (1, 16, 19, 60, 104), "pose": (1, 16, 20, 60, 104)},
    ),
}


def content(branch: dict[str, tuple[int, ...]], shared: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """What the recorder hands over: nodes of both branches, and what is known of the steps."""
    common = {name: ("same", torch.randn(shape).to(BF16)) for name, shape in shared.items()}
    times = ("each", [("same", torch.rand(1)) for _ in range(STEPS)])
    calls = [
        ("dict", {**common, "timestep": times, **{n: ("same", torch.randn(s).to(BF16)) for n, s in branch.items()}})
        for _ in range(2)
    ]
    return {"calls": calls, "dtype": BF16, "guidance": {"scale": 4.0}}


def pickled(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def unpickled(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def milliseconds(run: Callable[[], Any], repeats: int) -> float:
    """The least of some runs: what the machine's other work adds is no part of it."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        found.append(1000 * (time.perf_counter() - start))
    return min(found)


def measure(value: Any, repeats: int) -> None:
    """Print the two lines of one model."""
    before, after = pickled(value), write_record(value)
    for name, size, write, read in (
        ("pickle", len(before), lambda: pickled(value), lambda: [unpickled(before) for _ in range(STEPS)]),
        ("record", len(after), lambda: write_record(value), lambda: read_record(after)),
    ):
        times = f"write {milliseconds(write, repeats):8.2f} ms  read {milliseconds(read, repeats):8.2f} ms"
        print(f"  {name}  {size:12,} bytes  {times}")


def main(repeats: int) -> None:
    for model, sizes in MODELS.items():
        print(model)
        measure(content(*sizes), repeats)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
