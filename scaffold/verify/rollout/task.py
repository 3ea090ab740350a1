"""What the parent tells the process that runs the engine, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scaffold.files.reading import read_text


@dataclass(frozen=True)
class Task:
    """One process: one precision, one load of the model.

    Attributes:
        root: folder from which the package is imported.
        package: dotted name of the package.
        library: checkout of the real verl-omni, or None for the kit.
        kit: folder of the kit.
        checkpoint: folder of the tiny checkpoint.
        builder: script that writes the checkpoint if it is not there, or None.
        dtype: ``float32`` or ``bfloat16``.
        facts: what the spec says about prompts, guidance, latents and LoRA.
        checks: ids of the checks to measure.
        results: file to which measurements are appended, one JSON object a line.
        recording: folder that gets rollouts for level ``contract``, or None.
        sample: folder that gets what level ``train`` has to know of the tiny checkpoint, or None.
        runtime: folder of the runtime where it is a distribution, or None where it lies beside the package.
    """

    root: str
    package: str
    library: str | None
    kit: str
    checkpoint: str
    builder: str | None
    dtype: str
    facts: dict[str, Any]
    checks: list[str]
    results: str
    recording: str | None = None
    sample: str | None = None
    runtime: str | None = None

    def write(self, path: Path) -> None:
        """Write the task for :meth:`read`."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Task:
        """Read what :meth:`write` wrote."""
        return cls(**json.loads(read_text(path)))
