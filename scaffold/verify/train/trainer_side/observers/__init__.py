"""What is seen of a run beside the trainer's own metrics: one event a line, in a file of each process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def say(kind: str, **values: Any) -> None:
    """Write one event into the run's folder of events."""
    folder = os.environ.get("OMNI_SCAFFOLD_TRAIN_EVENTS")
    if folder:
        with Path(folder, f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "pid": os.getpid(), **values}) + "\n")
