"""Writes a tiny checkpoint that the package's own loader reads, and finds out how where the package does not say."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from scaffold.reading import read_text
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.subject.discovery import modules_of

_PREFIX = re.compile(r"""["']([a-z_][\w]*(?:\.\w+)*\.)["']""")
_FILE = re.compile(r"""["']([\w.-]+\.safetensors)["']""")


@dataclasses.dataclass(frozen=True)
class CheckpointWriter:
    """How a checkpoint of this package is written.

    Attributes:
        file: name of the weight file.
        names: parameter name to name in the checkpoint.
        config: content of ``config.json``.
    """

    file: str
    names: dict[str, str]
    config: dict[str, Any]

    def write(self, folder: Path, state: dict[str, Tensor], **changes: Tensor | None) -> None:
        """Write a checkpoint; ``changes`` are by checkpoint name, None takes a tensor out."""
        tensors: dict[str, Tensor | None] = {self.names[name]: value for name, value in state.items()}
        tensors |= changes
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        write_tensors(folder / self.file, tensors)


def write_tensors(file: Path, tensors: Mapping[str, Tensor | None]) -> None:
    """Write those that are tensors."""
    save_file({name: value.detach().clone().contiguous() for name, value in tensors.items() if value is not None}, file)


def checkpoint_writer(subject: Any, folder: Path) -> CheckpointWriter:
    """Find out how to write a checkpoint; ``folder`` is for trials.

    Raises:
        NotDrivableError: neither the package says nor a trial shows it.
    """
    if hasattr(subject, "checkpoint_writer"):
        return subject.checkpoint_writer()  # type: ignore[no-any-return]
    state = subject.new_module().state_dict()
    config = _config(subject, folder / "config")
    told = {name: value for module in modules_of(subject.name) for name, value in vars(module).items()}
    if callable(told.get("to_checkpoint_key")) and told.get("CHECKPOINT_FILES"):
        names = {name: told["to_checkpoint_key"](name) for name in state}
        return CheckpointWriter(told["CHECKPOINT_FILES"][0], names, config)
    text = "\n".join(read_text(file, errors="replace") for file in sorted(subject.folder.glob("*.py")))
    reasons = []
    for file in dict.fromkeys(_FILE.findall(text)):
        try:
            names = _by_trial(subject, folder / "trial", file, config, state, set(_PREFIX.findall(text)))
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
            continue
        if len(names) == len(state):
            return CheckpointWriter(file, names, config)
        reasons.append(f"{len(state) - len(names)} parameters of {file} were found under no name")
    detail = f": {reasons[0]}" if reasons else ""
    raise NotDrivableError(f"how the package names a checkpoint's tensors was not found out{detail}")


def load(subject: Any, folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """Load a checkpoint the way the engine does, through ``build_module``."""
    settings = subject.settings(local_path=str(folder))
    module = subject.training.build_module(settings, dtype)
    if module is None:
        raise NotDrivableError("build_module returns None: diffusers loads this module")
    return module


def _by_trial(
    subject: Any, folder: Path, file: str, config: dict[str, Any], state: dict[str, Tensor], prefixes: set[str]
) -> dict[str, str]:
    """Offer every parameter under every likely name, each filled with its own number, and see which are taken."""
    offers = [(name, prefix + name) for name in state for prefix in sorted({"", *prefixes})]
    tensors = {source: torch.full_like(state[name], float(i)) for i, (name, source) in enumerate(offers, start=1)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, folder / file)
    taken = {}
    for name, value in load(subject, folder).state_dict().items():
        number = value.flatten()[0].item()
        index = int(number) if number == int(number) and bool((value == number).all()) else 0
        if 1 <= index <= len(offers) and offers[index - 1][0] == name:
            taken[name] = offers[index - 1][1]
    return taken


def _config(subject: Any, folder: Path) -> dict[str, Any]:
    """Content of a ``config.json`` that is read as the tiny configuration."""
    subject.config.save_pretrained(str(folder))
    saved = json.loads(read_text(folder / "config.json"))
    if _read(subject, folder, saved) == subject.config:
        return dict(saved)
    content: dict[str, Any] = {}
    for field, path in _paths(subject, folder).items():
        place = content
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = getattr(subject.config, field)
    if _read(subject, folder, content) != subject.config:
        raise NotDrivableError("no config.json was found that from_model_path reads as the tiny configuration")
    return content


def _read(subject: Any, folder: Path, content: dict[str, Any]) -> Any:
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    try:
        return subject.config_class.from_model_path(str(folder))
    except Exception:
        return None


def _paths(subject: Any, folder: Path) -> dict[str, tuple[str, ...]]:
    """Where ``from_model_path`` looks for each field, told by numbers of which each key has its own."""
    asked: dict[float, tuple[str, ...]] = {}
    load_file, load_text = json.load, json.loads
    try:
        json.load = json.loads = lambda *_, **__: _Recorder((), asked)  # type: ignore[assignment]
        config = subject.config_class.from_model_path(str(folder))
    except Exception as error:
        raise NotDrivableError(f"from_model_path could not be followed: {type(error).__name__}: {error}") from error
    finally:
        json.load, json.loads = load_file, load_text
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {name: asked[value] for name, value in values.items() if isinstance(value, int | float) and value in asked}


class _Recorder(dict[str, Any]):
    """A JSON object that has every key: a section, or a number that tells the key."""

    def __init__(self, path: tuple[str, ...], asked: dict[float, tuple[str, ...]]) -> None:
        super().__init__()
        self._path, self._asked = path, asked

    def __contains__(self, key: object) -> bool:
        return True

    def get(self, key: str, default: Any = None) -> Any:
        return self._answer(key, isinstance(default, dict) or default is None, isinstance(default, float))

    def __getitem__(self, key: str) -> Any:
        return self._answer(key, key.endswith("config"), False)

    def _answer(self, key: str, section: bool, real: bool) -> Any:
        path = (*self._path, key)
        if section:
            return _Recorder(path, self._asked)
        number = 1_000_003 + len(self._asked)
        self._asked[number] = path
        return float(number) if real else number
