# Copyright 2026 Bytedance Ltd. and/or its affiliates
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The configuration of a training module, as a trainer's checkpoint has it: written, and read again."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import SimpleNamespace, new_class
from typing import Any, ClassVar

import torch

FILE = "config.json"


class SavedConfig:
    """Mixin of a denoiser's configuration class, so that VeRL can save it with every checkpoint.

    Attributes:
        _texts: the released configuration files by path; they are saved as they are.
        _values: of the denoiser's own, under the released names, with ``model_type`` and ``architectures``.
    """

    _texts: ClassVar[Mapping[str, str]] = {}
    _values: ClassVar[Mapping[str, Any]] = {}

    def to_dict(self) -> dict[str, Any]:
        """The values of ``config.json``."""
        return dict(self._values)

    def save_pretrained(self, save_directory: str, **kwargs: Any) -> None:
        """Write ``config.json``, and the other configuration files of the release beside it.

        Args:
            save_directory: takes the files.
            kwargs: not used.
        """
        write_config(save_directory, self._texts, self._values)


def saved_config(own: Any, values: Mapping[str, Any], texts: Mapping[str, str]) -> Any:
    """A copy of a denoiser's configuration that can be saved; attributes, items and class are those of ``own``.

    Args:
        own: a namespace, a dictionary, a dataclass, any object with attributes, or None where there is none.
        values: for ``config.json``, see :func:`config_values`.
        texts: the released configuration files by path.
    """
    kind = SimpleNamespace if own is None else type(own)
    made: Any = new_class(kind.__name__, (SavedConfig, kind))
    made._values, made._texts = dict(values), dict(texts)
    copy = made.__new__(made)
    if isinstance(own, dict):
        holder: Any = OrderedDict if isinstance(own, OrderedDict) else dict  # diffusers' own refuses to be written to
        for name, value in own.items():
            holder.__setitem__(copy, name, value)
    if own is None:
        copy.__dict__.update(values)
    else:
        for slot in (name for base in kind.__mro__ for name in getattr(base, "__slots__", ()) if hasattr(own, name)):
            object.__setattr__(copy, slot, getattr(own, slot))
        copy.__dict__.update(getattr(own, "__dict__", {}))
    # VeRL would look for Python files to copy: the module has none that the Hub could load.
    copy.__dict__.pop("auto_map", None)
    return copy


def config_values(module: type, own: Any, texts: Mapping[str, str], place: str) -> dict[str, Any]:
    """What stands in ``config.json`` of a checkpoint: the released values, else those that the module was built with.

    Args:
        module: class of the training module.
        own: its configuration, or None.
        texts: the released configuration files by path.
        place: folder of the denoiser's weights in the release.
    """
    path = next((path for path in (os.path.join(place, FILE), FILE) if path in texts), None)
    released = json.loads(texts[path]) if path is not None else _plain(own)
    return {"model_type": module.__module__.split(".")[-2:][0], "architectures": [module.__name__], **released}


def write_config(folder: str, texts: Mapping[str, str], values: Mapping[str, Any]) -> None:
    """Write released configuration files as they are, and ``config.json`` with a model's type in any case.

    Args:
        folder: takes the files.
        texts: the released files by path.
        values: of ``config.json`` where the release has none there; its ``model_type`` and ``architectures`` else.
    """
    named = {name: values[name] for name in ("model_type", "architectures") if name in values}
    root = {**named, **json.loads(texts[FILE])} if FILE in texts else values
    for path, text in {**texts, FILE: json.dumps(root, indent=2, sort_keys=True) + "\n"}.items():
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)


def released_texts(folder: str, *, every: bool) -> dict[str, str]:
    """Texts of configuration files and indexes, or of ``every`` JSON file, at the root and in components' folders."""
    texts = {}
    for place in ("", *sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())):
        for name in sorted(os.listdir(os.path.join(folder, place))):
            if name.endswith(".json" if every else ("config.json", "index.json")):
                with open(os.path.join(folder, place, name), encoding="utf-8") as file:
                    texts[os.path.join(place, name)] = file.read()
    return texts


def refuse_sharded(module: torch.nn.Module) -> None:
    """Refuse to save a sharded module, of which this process has only a part.

    Raises:
        ValueError: FSDP has sharded it.
    """
    kinds = {base.__name__ for part in module.modules() for base in type(part).__mro__}
    if kinds & {"FSDPModule", "FullyShardedDataParallel"} or any(
        "_flat_param" in n for n, _ in module.named_parameters()
    ):
        raise ValueError(
            f"{type(module).__name__} is sharded, and save_pretrained writes a whole one: let the trainer save it"
            " (trainer.save_freq), then `omni-scaffold export` makes a released checkpoint of what it saved"
        )


def _plain(own: Any) -> dict[str, Any]:
    """Values of a configuration that JSON can hold; what it cannot is left out."""
    plain = _json(own)
    return plain if isinstance(plain, dict) else {}


def _json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    elif isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    elif not isinstance(value, Mapping | list | tuple | str | int | float | bool | None):
        value = {name: entry for name, entry in getattr(value, "__dict__", {}).items() if name[:1] != "_"} or _NOTHING
    if isinstance(value, Mapping):
        entries = ((name, _json(entry)) for name, entry in value.items() if isinstance(name, str))
        return {name: entry for name, entry in entries if entry is not _NOTHING}
    if isinstance(value, list | tuple):
        return [entry for entry in map(_json, value) if entry is not _NOTHING]
    return value


_NOTHING: Any = object()
