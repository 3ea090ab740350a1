"""Header scan of a large sharded checkpoint: time and peak memory of ``read_checkpoint``.

    python benchmarks/header_scan.py [--tensors 100000] [--shards 64] [--repeat 3]

The checkpoint is made of sparse files, so it takes megabytes on disk whatever size it claims. The scan runs in a child
process; its time is given in seconds and as a multiple of ``python -c pass``, its memory as peak resident size and what
that is above the peak of ``python -c pass``. Exit 1 when a budget (2 s, 300 MB) is missed.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUDGET_SECONDS = 2.0
BUDGET_MEGABYTES = 300.0

ROOT = Path(__file__).resolve().parent.parent

# VmHWM starts anew with each program; ru_maxrss, all that other systems have, includes the parent's at the fork.
_PEAK = """
import pathlib, resource, sys
status = pathlib.Path("/proc/self/status")
if status.exists():
    peak_megabytes = int(status.read_text().split("VmHWM:")[1].split()[0]) / 2**10
else:
    peak_megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
"""

_SCAN = """
import json, sys, time
sys.path.insert(0, sys.argv[2])
from scaffold.checkpoint import read_checkpoint
start = time.perf_counter()
headers = read_checkpoint(sys.argv[1])
seconds = time.perf_counter() - start
"""


def make_checkpoint(folder: Path, tensors: int, shards: int) -> int:
    """Write a sharded checkpoint of sparse files with an index; return the bytes of tensor data it claims."""
    width = 1024
    kinds = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate", "mlp.up")
    weight_map: dict[str, str] = {}
    total = 0
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        position = 0
        for number in range(shard * tensors // shards, (shard + 1) * tensors // shards):
            layer, kind = divmod(number, len(kinds))
            name = f"model.language_model.layers.{layer % 64}.experts.{layer // 64}.{kinds[kind]}.weight"
            end = position + width * width * 2
            header[name] = {"dtype": "BF16", "shape": [width, width], "data_offsets": [position, end]}
            weight_map[name] = file
            position = end
        raw = json.dumps(header).encode()
        with (folder / file).open("wb") as stream:
            stream.write(struct.pack("<Q", len(raw)) + raw)
            stream.truncate(8 + len(raw) + position)
        total += position
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text('{"model_type": "benchmark"}')
    return total


def _child(code: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _start_up(repeat: int) -> tuple[float, float]:
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        seconds.append(time.perf_counter() - start)
    peak = _child(_PEAK + "print('{\"peak\": %f}' % peak_megabytes)")["peak"]
    return min(seconds), peak


def measure(tensors: int, shards: int, repeat: int) -> dict[str, float]:
    """Return seconds, megabytes and ratios of the best of ``repeat`` scans."""
    report = "print(json.dumps({'seconds': seconds, 'peak': peak_megabytes, 'tensors': len(headers.tensors)}))"
    with tempfile.TemporaryDirectory() as folder:
        total = make_checkpoint(Path(folder), tensors, shards)
        start_up, base = _start_up(repeat)
        runs = [_child(_SCAN + _PEAK + report, folder, str(ROOT)) for _ in range(repeat)]
    best = min(run["seconds"] for run in runs)
    peak = max(run["peak"] for run in runs)
    return {
        "tensors": runs[0]["tensors"],
        "shards": shards,
        "claimed_gigabytes": round(total / 1e9, 1),
        "seconds": round(best, 3),
        "seconds_per_start_up": round(best / start_up, 1),
        "peak_megabytes": round(peak, 1),
        "peak_megabytes_above_start_up": round(peak - base, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    result = measure(arguments.tensors, arguments.shards, arguments.repeat)
    for key, value in result.items():
        print(f"{key:32} {value}")
    return int(result["seconds"] > BUDGET_SECONDS or result["peak_megabytes"] > BUDGET_MEGABYTES)


if __name__ == "__main__":
    sys.exit(main())
