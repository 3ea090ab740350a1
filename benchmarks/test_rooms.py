"""Print the processor seconds that the tests of each room take, as rows of the table in CONTRIBUTING.md.

    python benchmarks/test_rooms.py                # every room, one after the other, for half an hour
    python benchmarks/test_rooms.py check plan     # these
    python benchmarks/test_rooms.py verify --marks "rollout and not newest and not rollout_table"

Seconds are those of pytest in one process and of all that it starts. What several rooms share, such as the answers of
`inspect`, counts in each: all rooms in one run take less than the sum.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from commands import ENVIRONMENT, once

ROOT = Path(__file__).resolve().parents[1]
MARKS = "not rollout and not train and not train_table and not table"


def main() -> None:
    """Run the rooms that are asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rooms", nargs="*", help="folders of tests/")
    options.add_argument("--marks", default=MARKS, help="which of their tests")
    asked = options.parse_args()
    os.chdir(ROOT)
    ENVIRONMENT["PYTHONDONTWRITEBYTECODE"] = ""
    rooms = asked.rooms or sorted(path.parent.name for path in ROOT.glob("tests/*/test_*.py"))
    for room in dict.fromkeys(rooms):
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "-m",
            asked.marks,
            f"tests/{room}",
        ]
        print(f"| `tests/{room}` | {once(pytest).processor:.0f} |", flush=True)


if __name__ == "__main__":
    main()
