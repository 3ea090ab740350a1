"""Writes a tiny checkpoint that the package's own loader reads, and finds out how where the package does not say."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from scaffold.attributes import with_attribute
from scaffold.files.reading import below, is_relative, read_text
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.rollout.engine_side.tiny.diffusers_denoiser import ordinary_module
from scaffold.verify.subject.discovery import modules_of
from scaffold.verify.subject.source_words import SAFETENSORS, WEIGHTS, literals, weight_files

_PREFIX = re.compile(r"[a-z_]\w*(?:\.\w+)*\.")


@dataclasses.dataclass(frozen=True)
class CheckpointWriter:
    """How a checkpoint of this package is written.

    Attributes:
        file: path of the weight file in the checkpoint's folder.
        names: parameter name to name in the checkpoint.
        documents: content of each JSON file, by path.
        under: key of the weight file, one that torch writes, below which the tensors lie.
    """

    file: str
    names: dict[str, str]
    documents: dict[str, Any]
    under: str | None = None

    def write(self, folder: Path, state: dict[str, Tensor], **changes: Tensor | None) -> None:
        """Write a checkpoint; ``changes`` are by checkpoint name, None takes a tensor out."""
        tensors: dict[str, Tensor | None] = {self.names[name]: value for name, value in state.items()}
        tensors |= changes
        write_documents(folder, self.documents)
        write_tensors(folder, self.file, tensors, self.under)


@dataclasses.dataclass(frozen=True)
class _SavingWriter(CheckpointWriter):
    """Lets the package save, where its parameters are joined of several tensors of the checkpoint.

    Attributes:
        save: ``(state, folder)`` writes a checkpoint.
    """

    save: Callable[[dict[str, Tensor], Path], None] = lambda state, folder: None

    def write(self, folder: Path, state: dict[str, Tensor], **changes: Tensor | None) -> None:
        self.save(state, folder)
        if changes:
            tensors, under = _read_tensors(folder / self.file)
            write_tensors(folder, self.file, {**tensors, **changes}, under)


def write_documents(folder: Path, documents: Mapping[str, Any]) -> None:
    """Write JSON files below a folder.

    Raises:
        OutsideError: a name leads out of it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in documents.items():
        place = below(folder, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(content), encoding="utf-8")


def write_tensors(folder: Path, name: str, tensors: Mapping[str, Tensor | None], under: str | None = None) -> None:
    """Write those that are tensors, as safetensors or in torch's own format; there below a key, if one is given.

    Args:
        folder: of the checkpoint.
        name: of the file, below it.
        tensors: by name.
        under: key below which torch's own format has them.

    Raises:
        OutsideError: the name leads out of the folder.
    """
    file = below(folder, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = {name: value.detach().clone().contiguous() for name, value in tensors.items() if value is not None}
    if file.suffix == SAFETENSORS:
        save_file(kept, file)
    else:
        torch.save(kept if under is None else {under: kept}, file)


def _read_tensors(file: Path) -> tuple[dict[str, Tensor], str | None]:
    """Tensors of a weight file, and the key below which they lie."""
    if file.suffix == SAFETENSORS:
        return load_file(file), None
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception:
        return {}, None  # something else than weights, such as the state of an optimizer
    sections = {key: value for key, value in content.items() if isinstance(value, dict)}
    under, found = next(iter(sections.items()), (None, content))
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}, under


def checkpoint_writer(subject: Any, folder: Path) -> CheckpointWriter:
    """Find out how to write a checkpoint; ``folder`` is for trials.

    Raises:
        NotDrivableError: neither the package says nor a trial shows it.
    """
    if hasattr(subject, "checkpoint_writer"):
        return subject.checkpoint_writer()  # type: ignore[no-any-return]
    state = subject.new_module().state_dict()
    documents = documents_of(subject, folder / "config")
    told = {name: value for module in modules_of(subject.name) for name, value in vars(module).items()}
    if callable(told.get("to_checkpoint_key")) and told.get("CHECKPOINT_FILES"):
        names = {name: told["to_checkpoint_key"](name) for name in state}
        file = str(told["CHECKPOINT_FILES"][0])
        if not is_relative(file):
            raise NotDrivableError(f"CHECKPOINT_FILES names {file!r}, which leads out of the checkpoint's folder")
        return CheckpointWriter(file, names, documents)
    saved = _as_it_saves(subject, folder / "saved", documents)
    if saved is not None:
        return saved
    prefixes = ["", *(word for word in literals(subject.folder) if _PREFIX.fullmatch(word))]
    reasons = []
    # All at once for a loader that picks what it knows; one after the other for one that refuses what it does not.
    for offered in (set(prefixes), *({prefix} for prefix in prefixes)):
        for file in weight_files(subject):
            try:
                names = _by_trial(subject, folder / "trial", file, documents, state, offered)
            except Exception as error:
                reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
                continue
            if len(names) == len(state):
                return CheckpointWriter(file, names, documents)
            reasons.append(f"{len(state) - len(names)} parameters of {file} were found under no name")
    detail = f": {reasons[0]}" if reasons else ""
    raise NotDrivableError(f"how the package names a checkpoint's tensors was not found out{detail}")


def documents_of(subject: Any, folder: Path) -> dict[str, Any]:
    """The JSON files of the tiny checkpoint, as the package's own loading code reads them."""
    if subject.table.files:
        return dict(subject.table.files)
    folder.mkdir(parents=True, exist_ok=True)
    return {"config.json": _config(subject, folder)}


def _as_it_saves(subject: Any, folder: Path, documents: dict[str, Any]) -> CheckpointWriter | None:
    """How ``save_pretrained`` writes, where the package loads that to the same values; None where it does not."""
    module = subject.new_module(seed=1)
    state = module.state_dict()
    try:
        module.save_pretrained(str(folder))
        write_documents(folder, {name: text for name, text in documents.items() if not (folder / name).exists()})
        loaded = load(subject, folder).state_dict()
    except Exception:
        return None
    if loaded.keys() != state.keys() or not all(torch.equal(loaded[name].float(), state[name]) for name in state):
        return None
    texts = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.json")}
    for file in sorted(path for path in folder.rglob("*.*") if path.suffix in WEIGHTS):
        kept, under = _read_tensors(file)
        names: dict[str, str] = {}
        for name, value in state.items():
            near = [key for key, other in kept.items() if other.shape == value.shape and torch.equal(other, value)]
            near = [name] if name in near else [key for key in near if key not in names.values()]
            names |= {name: near[0]} if near else {}
        if len(names) == len(state) == len(kept):
            content = {path: json.loads(read_text(place)) for path, place in texts.items()}
            return CheckpointWriter(file.relative_to(folder).as_posix(), names, content, under)
        names = {name: part for name, value in state.items() if (part := _part_of(value, kept))}
        if len(names) == len(state) and sum(map(Tensor.numel, kept.values())) == sum(map(Tensor.numel, state.values())):
            return _SavingWriter(file.relative_to(folder).as_posix(), names, {}, under, partial(_save, subject))
    return None


def _part_of(value: Tensor, kept: dict[str, Tensor]) -> str | None:
    """Name of a saved tensor that is the parameter or its first rows."""
    for name, other in kept.items():
        if other.shape[1:] == value.shape[1:] and torch.equal(other, value[: len(other)]):
            return name
    return None


def _save(subject: Any, state: dict[str, Tensor], folder: Path) -> None:
    module = subject.new_module()
    module.load_state_dict(state)
    module.save_pretrained(str(folder))


def load(subject: Any, folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """Load a checkpoint the way the engine does, through ``build_module``."""
    settings = subject.settings(local_path=str(folder))
    module = subject.training.build_module(settings, dtype)
    if module is None and subject.loaded:
        module = ordinary_module(str(folder), dtype)
        subject.training.adopt(module)  # as the first micro-batch of a training does
        return module
    if module is None:
        raise NotDrivableError("build_module returns None: diffusers loads this module")
    return module


def _by_trial(
    subject: Any, folder: Path, file: str, documents: dict[str, Any], state: dict[str, Tensor], prefixes: set[str]
) -> dict[str, str]:
    """Offer every parameter under every likely name, each filled with its own number, and see which are taken."""
    offers = [(name, prefix + name) for name in state for prefix in sorted(prefixes)]
    tensors = {source: torch.full_like(state[name], float(i)) for i, (name, source) in enumerate(offers, start=1)}
    shutil.rmtree(folder, ignore_errors=True)
    write_documents(folder, documents)
    write_tensors(folder, file, tensors)
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
    if values_of(_read(subject, folder, saved)) == values_of(subject.config):
        return dict(saved)
    content: dict[str, Any] = {}
    for field, path in _paths(subject, folder).items():
        place = content
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = getattr(subject.config, field)
    if values_of(_read(subject, folder, content)) != values_of(subject.config):
        raise NotDrivableError("no config.json was found that from_model_path reads as the tiny configuration")
    return content


def values_of(config: Any) -> dict[str, Any] | None:
    """Fields of a configuration; None of what is none.

    A library's configuration object in a field counts by its values: it also notes where it was read.
    """
    if not dataclasses.is_dataclass(config):
        return None
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {name: value.to_dict() if hasattr(value, "to_dict") else value for name, value in values.items()}


def _read(subject: Any, folder: Path, content: dict[str, Any]) -> Any:
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    try:
        return subject.config_class.from_model_path(str(folder))
    except Exception:
        return None


def _paths(subject: Any, folder: Path) -> dict[str, tuple[str, ...]]:
    """Where ``from_model_path`` looks for each field, told by numbers of which each key has its own."""
    asked: dict[float, tuple[str, ...]] = {}
    try:
        with with_attribute(json, "loads", lambda *_, **__: _Recorder((), asked)):  # json.load calls it, too
            config = subject.config_class.from_model_path(str(folder))
    except Exception as error:
        raise NotDrivableError(f"from_model_path could not be followed: {type(error).__name__}: {error}") from error
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
