"""Files that a pipeline reads by itself: under which keys it looks for the denoiser in them, and for other parts.

No list of names says it. The package's builder is handed made-up tensors in place of a file, and what it takes for the
denoiser's tells.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import torch

from scaffold.attributes import with_attribute

MINE, STRAY = "of_the_denoiser", "nobody.knows.me"
OTHER = "of_another_part"  # holds the place of a part that only the pipeline itself loads

Build = Callable[[], tuple[Any, dict[str, torch.Tensor]]]


@dataclass
class Layout:
    """What the files are like.

    Attributes:
        keys: file, relative to the checkpoint, and key of each of the denoiser's parameters.
        marks: keys of files with which the builder builds a denoiser of any size.
        other: what stands before the keys of another part; None where a file has none.
        strict: whether a tensor that belongs to nothing is noticed.
        parts: tensors of the other part, once it is known.
    """

    keys: dict[str, tuple[str, str]]
    marks: tuple[str, ...]
    other: str | None
    strict: bool
    parts: dict[str, torch.Tensor] = field(default_factory=dict)

    def files(self, tensors: dict[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
        """Tensors of each file: the denoiser's, and those of the other part or what holds their place."""
        found: dict[str, dict[str, torch.Tensor]] = {}
        for name, (path, key) in self.keys.items():
            found.setdefault(path, {})[key] = tensors[name]
        if self.other is not None:
            parts = self.parts or {OTHER: torch.zeros(1)}
            for state in found.values():
                state |= {self.other + name: tensor for name, tensor in parts.items()}
        return found


def find_layout(weights: Any, build: Build, renames: Sequence[Sequence[str]], folder: Path) -> Layout | None:
    """Find keys with which the builder takes every parameter of the denoiser from files.

    Of those it takes, one is preferred with which it notices a tensor that belongs to nothing.

    Args:
        weights: the runtime's module of checkpoints, whose ``EngineConfig`` opens the files.
        build: the builder with a new configuration; returns the denoiser and its tensors by name.
        renames: the loader's table, what a checkpoint has and what the module has.
        folder: the checkpoint.
    """
    prefixes = [*dict.fromkeys(saved for saved, own in renames if not own), ""]
    loose: Layout | None = None
    for mine, other in product(prefixes, (None, *prefixes[:-1])):
        marks = (mine + MINE, *(() if other is None else (other + OTHER,)))
        found = _taken(weights, build, marks, folder)
        if found is None or MINE not in found[1]:
            continue
        names = [name for name, _ in found[0].named_parameters()]
        for keys in ([mine + _saved(name, renames) for name in names], [mine + name for name in names]):
            for stray in ((STRAY,), ()):
                found = _taken(weights, build, (*keys, *stray, *marks[1:]), folder)
                if found is None or found[1].keys() - {STRAY} != set(names):
                    continue
                strict = found[1].pop(STRAY, None) is not None
                layout = Layout(found[1], marks, other, strict)
                if strict:
                    return layout
                loose = loose or layout
    return loose


@contextlib.contextmanager
def handing(weights: Any, keys: Iterable[str], folder: Path) -> Iterator[dict[int, tuple[torch.Tensor, str, str]]]:
    """Inside the block, every file that the builder reads has these keys.

    Yields:
        The tensors that were handed out, by identity, with file and key.
    """
    given = list(keys)
    read: dict[int, tuple[torch.Tensor, str, str]] = {}

    def load_file(_: Any, path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
        found = {key: torch.zeros(1) for key in given}
        place = os.path.relpath(path, folder)
        read.update({id(tensor): (tensor, place, key) for key, tensor in found.items()})
        return found

    with with_attribute(weights.EngineConfig, "load_file", load_file):
        yield read


def _taken(
    weights: Any, build: Build, keys: Iterable[str], folder: Path
) -> tuple[Any, dict[str, tuple[str, str]]] | None:
    """The denoiser that is built of files with these keys, and by name where each tensor of it came from."""
    with handing(weights, keys, folder) as read, weights.parameters_on_meta():
        try:
            module, tensors = build()
        except Exception:  # the builder says in its own words that these keys are not what it looks for
            return None
    if not isinstance(tensors, dict) or any(id(tensor) not in read for tensor in tensors.values()):
        return None
    return module, {name: read[id(tensor)][1:] for name, tensor in tensors.items()}


def _saved(name: str, renames: Sequence[Sequence[str]]) -> str:
    """A parameter's name before the loader's table was applied to it."""
    for saved, own in reversed(renames):
        if own:
            name = name.replace(own, saved)
    return name


def refused_part(error: BaseException) -> torch.nn.Module | None:
    """The module of another part that was handed what holds its place in a file; None where another thing failed."""
    trace = error.__traceback__
    while trace is not None:
        values = trace.tb_frame.f_locals
        if trace.tb_frame.f_code.co_name == "load_state_dict" and isinstance(values.get("self"), torch.nn.Module):
            if OTHER in (values.get("state_dict") or {}):
                part: torch.nn.Module = values["self"]
                return part
        trace = trace.tb_next
    return None


@contextlib.contextmanager
def noting_missing(folder: Path, names: dict[str, Any]) -> Iterator[set[Path]]:
    """Inside the block, configuration files below ``folder`` that a module looks for and that are not there.

    Args:
        folder: the checkpoint.
        names: the module's globals.
    """
    missing: set[Path] = set()

    def noting(ask: Callable[..., bool]) -> Callable[..., bool]:
        def asked(path: Any, *args: Any, **kwargs: Any) -> bool:
            found, place = ask(path, *args, **kwargs), Path(path)
            if not found and place.suffix == ".json" and folder in place.parents:
                if sys._getframe(1).f_globals is names:
                    missing.add(place)
            return found

        return asked

    with (
        with_attribute(Path, "is_file", noting(Path.is_file)),
        with_attribute(os.path, "isfile", noting(os.path.isfile)),
    ):
        yield missing
