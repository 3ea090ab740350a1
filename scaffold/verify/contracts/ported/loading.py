"""A checkpoint that does not fit is refused."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import torch

from scaffold.verify.contracts.loading import LIMIT, _accepts
from scaffold.verify.measured import Measured
from scaffold.verify.subject.checkpoint import load


def run(subject: Any) -> Measured:
    """Load a complete checkpoint and compare every parameter; then damaged ones.

    A tensor that upstream's own loader does not use is named in the log and is not a fault: released checkpoints hold
    such tensors.
    """
    module = subject.new_module(seed=1)  # other values than those by which the files were found out
    state = module.state_dict()
    writer = subject.checkpoint_writer()
    with tempfile.TemporaryDirectory() as folder:
        writer.write(Path(folder, "complete"), state)
        loaded = load(subject, Path(folder, "complete")).state_dict()
        unfilled = dict(module.named_parameters()).keys() - writer.names.keys()
        problems = [f"no tensor of the checkpoint fills {name}" for name in sorted(unfilled)[:2]]
        problems += [
            f"{name} is loaded with other values than the checkpoint's"
            for name in sorted(writer.names)
            if loaded[name].shape != state[name].shape or not torch.equal(loaded[name], state[name])
        ][:3]
        source = next(key for name, key in reversed(writer.names.items()) if state[name].ndim == 2)
        faults: dict[str, dict[str, Any]] = {
            f"a missing tensor ({source})": {source: None},
            f"a mis-shaped tensor ({source})": {source: torch.zeros(3, 5)},
        }
        problems += [
            f"{fault} is accepted without an error"
            for i, (fault, change) in enumerate(faults.items())
            if _accepts(subject, writer, folder, i, state, change)
        ]
        if _silent(subject, writer, Path(folder, "surplus"), state):
            problems.append("a tensor of an unknown name is passed over without a word")
    line = f"{len(writer.names)} tensors fill every parameter; damage is refused, an unknown tensor named"
    return Measured(line, problems, float(len(problems)), LIMIT, "faults")


def _silent(subject: Any, writer: Any, folder: Path, state: dict[str, Any]) -> bool:
    """Whether an unknown tensor is neither refused nor named."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    writer.write(folder, state, **{"nobody.knows.me": torch.zeros(1)})
    try:
        load(subject, folder)
    except Exception:
        return False
    finally:
        logging.getLogger().removeHandler(handler)
    return not any("nobody.knows.me" in line for line in said)
