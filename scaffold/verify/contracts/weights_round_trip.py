"""What is saved loads again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from scaffold.verify.formulas import same
from scaffold.verify.measured import Measured
from scaffold.verify.subject.checkpoint import load

ID = "weights-round-trip"
TITLE = "save_pretrained of the module, loaded by build_module, gives the same weights bit for bit"
PITFALLS = (20, 21, 22, 36)
LIMIT = 0.0  # nothing is computed between saving and loading in one dtype


def run(subject: Any) -> Measured:
    """Save a float32 module, load it, compare names, shapes and values."""
    module = subject.new_module()
    subject.geometry  # noqa: B018  # found before memory is watched
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        written = sorted(path.name for path in Path(folder).iterdir())
        try:
            loaded = load(subject, Path(folder))
        except Exception as error:
            line = " ".join(str(error).split())[:200]
            return Measured("", [f"{', '.join(written)} are not loaded again: {type(error).__name__}: {line}"])
    before, after = module.state_dict(), loaded.state_dict()
    wrong = sorted(before.keys() ^ after.keys())
    problems = [f"{name} is on one side only" for name in wrong[:2]]
    differing = [name for name in before.keys() & after.keys() if not _same(before[name], after[name])]
    problems += [f"{name} comes back with other values" for name in sorted(differing)[:2]]
    return Measured(
        f"{len(before)} tensors through {', '.join(written)}",
        problems,
        float(len(wrong) + len(differing)),
        LIMIT,
        "tensors",
    )


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and same(one, other)
