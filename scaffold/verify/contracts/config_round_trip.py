"""The configuration is saved with the weights and read back."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from scaffold.files.reading import read_text
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.checkpoint import values_of

ID = "config-round-trip"
TITLE = "save_pretrained of the configuration, read by from_model_path or from_pretrained, gives the same values"
PITFALLS = (36,)
LIMIT = 0.0  # a field that falls back to its default resumes training with another model


def run(subject: Any) -> Measured:
    """Save the tiny configuration, none of whose sizes is a default, and compare field by field."""
    module = subject.new_module()
    config = subject.config
    if not hasattr(config, "save_pretrained") or not hasattr(config, "__dataclass_fields__"):
        raise NotDrivableError("the configuration is not a dataclass that saves itself; see weights-round-trip")
    kind = subject.config_class
    library = not hasattr(kind, "from_model_path") and hasattr(kind, "from_pretrained")
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        found = kind.from_pretrained(folder) if library else kind.from_model_path(folder)
    was, read = ((one.to_dict() if library else values_of(one)) or {} for one in (config, found))
    wrong = [f"{name} is {read.get(name)!r}, was {value!r}" for name, value in was.items() if read.get(name) != value]
    if getattr(module, "config", None) != config:
        wrong.append("the module does not keep its configuration in self.config, so nothing is saved")
    return Measured(f"{len(was)} fields read back", wrong, float(len(wrong)), LIMIT, "fields")


def run_recorded(subject: Any) -> Measured:
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
