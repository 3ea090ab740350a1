"""Proof of a key map on a large checkpoint: processor time of inference and of the proof.

    python benchmarks/remap_proof.py [--layers 6250] [--repeat 3]

Each layer has 16 tensors. Times are of the processor, in seconds and as multiples of ``python -c pass``: a proof of one
prefix rule, a proof of 16 rules with placeholders, and the inference of the prefix rule.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scaffold.checkpoint import CheckpointFile, CheckpointHeaders, TensorHeader
from scaffold.remap import KeyMap, Rule, infer_key_map, prove

KINDS = 16
PREFIX = "language_model.model."


def _start_up(repeat: int) -> float:
    """Return the least processor time of ``python -c pass`` in seconds."""
    seconds = []
    for _ in range(repeat):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def _seconds(run: Callable[[], object], repeat: int) -> float:
    found = []
    for _ in range(repeat):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def main() -> int:
    """Print a row for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=6250)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    shapes = {f"layers.{n}.m{kind}.weight": (kind + 1, 3) for n in range(options.layers) for kind in range(KINDS)}
    entries = tuple(TensorHeader(PREFIX + name, "BF16", shape, "w") for name, shape in shapes.items())
    size = sum(entry.nbytes for entry in entries)
    headers = CheckpointHeaders("made up", (CheckpointFile("w", len(entries), size),), entries)
    one = KeyMap((Rule(PREFIX, ""),))
    many = KeyMap(tuple(Rule(f"{PREFIX}layers.{{n}}.m{k}.", f"layers.{{n}}.x{k}.") for k in range(KINDS)))
    renamed = {name.replace(".m", ".x"): shape for name, shape in shapes.items()}
    if not prove(one, headers, shapes).holds or not prove(many, headers, renamed).holds:
        print("the proof does not hold", file=sys.stderr)
        return 1
    base = _start_up(max(5, options.repeat))
    print(f"{len(entries):,} keys; python -c pass: {base:.3f} s")
    for title, run in (
        ("proof, one prefix", lambda: prove(one, headers, shapes)),
        (f"proof, {KINDS} rules with placeholders", lambda: prove(many, headers, renamed)),
        ("inference", lambda: infer_key_map(headers, shapes)),
    ):
        seconds = _seconds(run, options.repeat)
        print(f"{title}: {seconds:.2f} s, {seconds / base:.0f} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
