"""Time ``inspect`` of every registered class and the whole table: 1.5 s a class, 20 s a table on 2 processors.

python benchmarks/inspect_all.py [--vllm-omni VERSION ...] [--strict]
"""

from __future__ import annotations

import argparse
import sys
import time

from scaffold.inspect import inspect_pipeline
from scaffold.inspect.table import inspect_all, registered_classes
from scaffold.upstream import locate

VERSIONS = ("0.22.0", "0.24.0", "0.27.0rc1", "0.28.0", "0.30.0", "0.32.0rc1")
CLASS_BUDGET, TABLE_BUDGET, SHOWN = 1.5, 20.0, 5


def class_seconds(version: str) -> dict[str, float]:
    """Processor seconds of each class by itself, parsing included: each starts from a source not read before."""
    seconds = {}
    for key in registered_classes(locate(version)):
        source = locate(version)
        start = time.process_time()
        inspect_pipeline(source, key)
        seconds[key] = time.process_time() - start
    return seconds


def main() -> None:
    """Print the slowest classes and the table's wall time for each version."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-omni", nargs="+", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--strict", action="store_true", help="fail where a budget is exceeded")
    options = parser.parse_args()
    over = []
    for version in options.vllm_omni:
        seconds = class_seconds(version)
        start = time.perf_counter()
        inspect_all(version)
        wall = time.perf_counter() - start
        slowest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:SHOWN]
        print(f"{version:10s} {len(seconds)} classes, {sum(seconds.values()):5.1f} s one by one, table {wall:5.1f} s")
        for key in slowest:
            print(f"{'':12s}{seconds[key]:5.2f} s  {key}")
        over += [f"{key} of {version}" for key in seconds if seconds[key] > CLASS_BUDGET]
        over += [f"table of {version}"] * (wall > TABLE_BUDGET)
    if over and options.strict:
        sys.exit("over budget: " + ", ".join(over))


if __name__ == "__main__":
    main()
