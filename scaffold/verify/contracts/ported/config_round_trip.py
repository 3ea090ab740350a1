"""The configuration is saved with the weights and read back."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from scaffold.files.reading import read_text
from scaffold.verify.contracts.config_round_trip import LIMIT
from scaffold.verify.measured import Measured


def run(subject: Any) -> Measured:
    """Save the module and compare each configuration file of the denoiser with the checkpoint's."""
    module = subject.new_module()
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        before, after = _files(subject.checkpoint), _files(Path(folder))
    missing = sorted(before.keys() - after.keys())
    wrong = [f"{name} is not saved" for name in missing]
    wrong += [
        f"{name} is saved with other values"
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    ]
    return Measured(f"{len(before)} configuration files come back", wrong, float(len(wrong)), LIMIT, "files")


def _files(folder: Path) -> dict[str, Any]:
    """Configurations at the root and of components, by path."""
    found = [path for pattern in ("*.json", "*/*.json") for path in sorted(folder.glob(pattern))]
    found = [path for path in found if path.name in ("config.json", "model_index.json")]
    return {path.relative_to(folder).as_posix(): json.loads(read_text(path)) for path in found}
