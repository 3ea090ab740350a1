"""The denoiser of a package that trains a class of diffusers: configuration and weights as diffusers saves them."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from scaffold.files.reading import read_text
from scaffold.verify.rollout.engine_side.tiny.asked import taken_by
from scaffold.verify.rollout.engine_side.tiny.components import NoTinyModelError, randomised
from scaffold.verify.rollout.engine_side.tiny.denoiser import LARGEST, other_branch
from scaffold.verify.rollout.engine_side.tiny.read_files import Layout
from scaffold.verify.rollout.engine_side.tiny.shrink import DENOISER, shrunk

FOLDER = "transformer"


class DiffusersModule:
    """A class of diffusers, made small.

    Args:
        facts: ``pipeline`` is the name that the engine knows the pipeline by, ``class`` the engine's denoiser.

    Raises:
        NoTinyModelError: the installed diffusers has no such class.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.entry = denoiser_class(str(facts["pipeline"]), str(facts["class"]))
        self.fitted: dict[str, Any] = {}
        self.replaced: dict[str, tuple[Any, Any]] = {}
        self.classes: dict[str, str] = {}
        self.own = self.shared = False
        self.layout: Layout | None = None
        self.sections: set[str] = set()
        self.configurations: set[Path] = set()

    def fit(self, error: Exception, channels: int | None) -> bool:
        """Turn the flag that chose the branch in which a request failed; returns whether one did."""
        defaults = {name: value for name, value in taken_by(self.entry).items() if name not in self.fitted}
        turned = other_branch(error, defaults)
        self.fitted |= turned
        return bool(turned)

    def write(self, folder: Path, given: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
        """Write configuration and weights; returns what it is built of.

        Raises:
            NoTinyModelError: it cannot be built small.
        """
        index = folder / "model_index.json"
        told = json.loads(read_text(index)) if index.is_file() else {}
        told |= {"_class_name": self.facts["pipeline"], FOLDER: ["diffusers", self.entry.__name__]}
        index.write_text(json.dumps(told), encoding="utf-8")
        parameters = taken_by(self.entry)
        stated = {name: value for name, value in parameters.items() if value not in (None, "") and name not in given}
        settings = {**small_settings(stated), **self.fitted, **given}
        try:
            with torch.device("meta"):
                size = sum(parameter.numel() for parameter in self.entry.from_config(settings).parameters())
            if size > LARGEST:
                raise NoTinyModelError(f"{self.entry.__name__} has {size:,} parameters with small settings")
            module = self.entry.from_config(settings)
        except NoTinyModelError:
            raise
        except Exception as error:
            line = " ".join(str(error).split())[:300]
            raise NoTinyModelError(
                f"{self.entry.__name__} cannot be built of {settings}: {type(error).__name__}: {line};"
                " set values in [verify.denoiser] of scaffold.toml"
            ) from error
        randomised(module).to(dtype).save_pretrained(folder / FOLDER)
        found = dict(module.config)
        # An engine that asks no configuration builds its class with the class's own defaults: it is then built small.
        engine: Any = getattr(importlib.import_module(str(self.facts["module"])), str(self.facts["class"]))
        own = taken_by(engine).items()
        self.replaced = {n: (value, found[n]) for n, value in own if _plain(value) and found.get(n, value) != value}
        self.classes = {str(self.facts["module"]): str(self.facts["class"])}
        return found


def small_settings(stated: dict[str, Any]) -> dict[str, Any]:
    """Small settings of a class, whose latents keep their channels and what is as wide as its blocks their width."""
    small = shrunk(stated, DENOISER)
    sizes = ("num_attention_heads", "attention_head_dim")
    width, narrow = (math.prod(found.get(name) or 0 for name in sizes) for found in (stated, small))
    for name, value in stated.items():
        if re.search(r"(^|_)(in|out)_channels$", name):
            small[name] = value
        elif type(value) is int and value == width and name not in sizes:
            small[name] = narrow
    return small


def _plain(value: Any) -> bool:
    """Whether JSON holds it as it is."""
    items = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(item, bool | int | float | str | None) for item in items)


def denoiser_class(pipeline: str, denoiser: str) -> Any:
    """The class that diffusers' own pipeline of that name takes, else its model of the engine's name.

    Raises:
        NoTinyModelError: the installed diffusers has neither.
    """
    library: Any = importlib.import_module("diffusers")
    found = [*_annotated(getattr(library, pipeline, None)), getattr(library, denoiser, None)]
    known = [kind for kind in found if inspect.isclass(kind) and issubclass(kind, library.ModelMixin)]
    if not known:
        raise NoTinyModelError(
            f"diffusers {library.__version__} has neither a denoiser of {pipeline} nor {denoiser}: install one that has"
        )
    return known[0]


def component_classes(pipeline: str) -> dict[str, Any]:
    """Classes of a pipeline's components by their folders, as diffusers' own pipeline of that name takes them."""
    made = getattr(importlib.import_module("diffusers"), pipeline, None)
    names = inspect.signature(made.__init__).parameters if inspect.isclass(made) else {}
    return {name: kind for name in names for kind in _annotated(made, name)}


def _annotated(pipeline: Any, name: str = FOLDER) -> Iterator[Any]:
    """The class of a pipeline's argument."""
    parameters = inspect.signature(pipeline.__init__).parameters if inspect.isclass(pipeline) else {}
    annotation = getattr(parameters.get(name), "annotation", None)
    for part in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(part, str):
            part = getattr(importlib.import_module("diffusers"), part, None)
        if inspect.isclass(part):
            yield part


def ordinary_module(checkpoint: str, dtype: torch.dtype) -> Any:
    """The module as VeRL-Omni loads it where an adapter builds none."""
    library: Any = importlib.import_module("diffusers")
    module = library.AutoModel.from_pretrained(checkpoint, torch_dtype=dtype, subfolder=FOLDER).to(dtype)
    module.config.save_pretrained = functools.partial(_save_config, module.config)
    return module


def _save_config(config: Mapping[str, Any], save_directory: str) -> None:
    """What VeRL-Omni lets the configuration of such a module do: its checkpoints have it."""
    Path(save_directory, "config.json").write_text(json.dumps(dict(config), indent=4, sort_keys=True), encoding="utf-8")
