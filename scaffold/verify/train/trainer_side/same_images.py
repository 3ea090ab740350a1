"""How far the images or films of two validations are apart, and those before training; run by the environment's Python.

``python same_images.py RUN EXPORTED``, each a folder that ``brightness.py`` has filled.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def validated(folder: str) -> dict[str, list[Any]]:
    """What was made of each row of the test data, in the order of time."""
    found: dict[str, list[Any]] = {}
    for path in sorted(Path(folder).glob("*.npy")):
        found.setdefault(path.name.partition(".")[0], []).append(np.load(path).astype(float))
    return found


def main() -> None:
    """Print the two largest mean distances from the last validation, in levels of 255; null where nothing is kept."""
    run, exported = map(validated, sys.argv[1:3])
    if run.keys() != exported.keys():
        raise ValueError(f"the run has validated {len(run)} rows, the export {len(exported)}")
    apart = {
        "exported": [np.abs(run[row][-1] - exported[row][-1]).mean() for row in run],
        "untrained": [np.abs(run[row][-1] - run[row][0]).mean() for row in run],
    }
    print(json.dumps({name: float(max(far)) if far else None for name, far in apart.items()}))


if __name__ == "__main__":
    main()
