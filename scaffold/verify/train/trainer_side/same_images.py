"""How far the images of two validations are apart, and those before training; run by the environment's Python.

``python same_images.py LAST EXPORTED UNTRAINED``, each what VeRL-Omni dumps of a validation, as ``DIR/STEP.jsonl``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def images_of(table: str) -> list[Any]:
    """The images of a validation in the order of their prompts and scores, as the queue may hand them out in any."""
    rows = [json.loads(line) for line in Path(table).read_text(encoding="utf-8").splitlines()]
    rows.sort(key=lambda row: (row["input"], row["score"]))
    return [np.asarray(Image.open(row["output"])).astype(float) for row in rows]


def apart(one: list[Any], other: list[Any]) -> float:
    """The largest mean distance of two images, in levels of 255."""
    return max(float(np.abs(a - b).mean()) for a, b in zip(one, other, strict=True))


def main() -> None:
    """Print the two distances from the last validation."""
    last, exported, untrained = map(images_of, sys.argv[1:4])
    print(json.dumps({"images": len(last), "exported": apart(last, exported), "untrained": apart(last, untrained)}))


if __name__ == "__main__":
    main()
