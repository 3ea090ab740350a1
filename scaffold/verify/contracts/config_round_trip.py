"""The configuration is saved with the weights and read back."""

from __future__ import annotations

import tempfile
from typing import Any

from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.checkpoint import values_of

ID = "config-round-trip"
TITLE = "save_pretrained of the configuration, read by from_model_path, gives the same values"
PITFALLS = (36,)
LIMIT = 0.0  # a field that falls back to its default resumes training with another model


def run(subject: Any) -> Measured:
    """Save the tiny configuration, none of whose sizes is a default, and compare field by field."""
    module = subject.new_module()
    config = subject.config
    if not hasattr(config, "save_pretrained") or not hasattr(config, "__dataclass_fields__"):
        raise NotDrivableError("the configuration is not a dataclass that saves itself; see weights-round-trip")
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        found = subject.config_class.from_model_path(folder)
    was, read = values_of(config) or {}, values_of(found) or {}
    wrong = [f"{name} is {read.get(name)!r}, was {value!r}" for name, value in was.items() if read.get(name) != value]
    if getattr(module, "config", None) != config:
        wrong.append("the module does not keep its configuration in self.config, so nothing is saved")
    return Measured(f"{len(was)} fields read back", wrong, float(len(wrong)), LIMIT, "fields")
