"""What is saved loads again: the configuration and the weights."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from scaffold.files.reading import read_text
from scaffold.verify.formulas import same
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.checkpoint import load, values_of


class ConfigRoundTrip:
    """The configuration is saved as the trainer saves it, with every checkpoint, and read back."""

    ID = "config-round-trip"
    TITLE = (
        "config.save_pretrained, which the trainer calls at every save, writes a config.json, and from_model_path or"
        " from_pretrained reads the same values"
    )
    PITFALLS = (36,)
    LIMIT = 0.0  # a field that falls back to its default resumes training with another model

    @staticmethod
    def run(subject: Any) -> Measured:
        """Save the tiny configuration, none of whose sizes is a default, and compare field by field."""
        module = subject.new_module()
        problem = _unsaved(module)
        if problem is not None:
            return Measured("", [problem])
        config = subject.config
        if not hasattr(config, "save_pretrained") or not hasattr(config, "__dataclass_fields__"):
            raise NotDrivableError("the configuration is not a dataclass that saves itself; see weights-round-trip")
        kind = subject.config_class
        library = not hasattr(kind, "from_model_path") and hasattr(kind, "from_pretrained")
        with tempfile.TemporaryDirectory() as folder:
            config.save_pretrained(folder)
            found = kind.from_pretrained(folder) if library else kind.from_model_path(folder)
        was, read = ((one.to_dict() if library else values_of(one)) or {} for one in (config, found))
        wrong = [
            f"{name} is {read.get(name)!r}, was {value!r}" for name, value in was.items() if read.get(name) != value
        ]
        if getattr(module, "config", None) != config:
            wrong.append("the module does not keep its configuration in self.config, so nothing is saved")
        return Measured(f"{len(was)} fields read back", wrong, float(len(wrong)), ConfigRoundTrip.LIMIT, "fields")

    @staticmethod
    def run_recorded(subject: Any) -> Measured:
        """Save the module and compare each configuration file of the denoiser with the checkpoint's."""
        module = subject.new_module()
        problem = _unsaved(module)
        if problem is not None:
            return Measured("", [problem])
        with tempfile.TemporaryDirectory() as folder:
            module.save_pretrained(folder)
            before, after = _files(subject.checkpoint), _files(Path(folder))
        if subject.loaded:  # diffusers saves the module alone, and notes where it was read
            own = {"config.json": before["transformer/config.json"]}
            before, after = (
                {path: {n: v for n, v in values.items() if not n.startswith("_")} for path, values in files.items()}
                for files in (own, after)
            )
        missing = sorted(before.keys() - after.keys())
        wrong = [f"{name} is not saved" for name in missing]
        wrong += [
            f"{name} is saved with other values"
            for name in sorted(before.keys() & after.keys())
            if before[name] != after[name]
        ]
        return Measured(
            f"{len(before)} configuration files come back", wrong, float(len(wrong)), ConfigRoundTrip.LIMIT, "files"
        )


def _unsaved(module: Any) -> str | None:
    """Save the module's configuration as VeRL's checkpoint manager does; why the training would end there, or None."""
    config: Any = getattr(module, "config", None)
    if not callable(getattr(config, "save_pretrained", None)):
        told = "module.config is missing" if config is None else f"module.config, a {type(config).__name__}, has none"
        return f"the trainer calls module.config.save_pretrained at every save, and {told}: training ends there"
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        try:
            written = json.loads(read_text(Path(folder, "config.json")))
        except (OSError, ValueError) as error:
            return f"config.save_pretrained leaves no config.json that can be read: {error}"
    return None if isinstance(written, dict) else "config.save_pretrained leaves a config.json that is no object"


def _files(folder: Path) -> dict[str, Any]:
    """Configurations at the root and of components, by path."""
    found = [path for pattern in ("*.json", "*/*.json") for path in sorted(folder.glob(pattern))]
    found = [path for path in found if path.name in ("config.json", "model_index.json")]
    return {path.relative_to(folder).as_posix(): json.loads(read_text(path)) for path in found}


class WeightsRoundTrip:
    """What is saved loads again."""

    ID = "weights-round-trip"
    TITLE = "save_pretrained of the module, loaded by build_module, gives the same weights bit for bit"
    PITFALLS = (20, 21, 22, 36)
    LIMIT = 0.0  # nothing is computed between saving and loading in one dtype

    @staticmethod
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
            WeightsRoundTrip.LIMIT,
            "tensors",
        )


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and same(one, other)
