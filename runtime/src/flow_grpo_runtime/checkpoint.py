"""A checkpoint's tensors under the names of the training module, and back."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from .engine_config import EngineConfig, checkpoint_folder, weights_file
from .export import Piece
from .fused import Fused
from .saved_config import released_texts
from .upstream import take_apart

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DenoiserSource:
    """Where a pipeline gets its denoiser from.

    Attributes:
        build: the pipeline's own code: makes the denoiser of an :class:`EngineConfig`, and says what it loads: folders
            with a prefix and patterns of files, tensors by name, or tensors with names for the denoiser's loader.
            None where that is still to be written.
        prefix: of the denoiser in the pipeline, with a dot, which its keys have; empty for a pipeline that is one.
        file: the checkpoint is one file.
        handed: the pipeline reads the files by itself and hands tensors to the denoiser's loader.
        own: the training module holds the pipeline's own modules, which may cut tensors into rows.
        fused: layers that the engine fuses.
    """

    build: Callable[[Any], tuple[nn.Module, Any]] | None
    prefix: str = ""
    file: bool = False
    handed: bool = False
    own: bool = False
    fused: Fused = ()

    def built(self, model_path: str, dtype: torch.dtype) -> tuple[nn.Module, Any, EngineConfig]:
        """The denoiser on the meta device, what it loads, and the configuration that read it.

        Raises:
            FileNotFoundError: there is no checkpoint.
            NotImplementedError: how to load it is still to be written.
        """
        if self.build is None:
            raise NotImplementedError("how the denoiser is loaded is still to be written")
        if not self.file and not os.path.isdir(model_path):
            raise FileNotFoundError(f"{model_path} is no folder")
        config = EngineConfig(weights_file(model_path) if self.file else model_path, dtype)
        with parameters_on_meta():
            module, sources = self.build(config)
        return take_apart(module, self.fused), sources, config


@contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Let modules that are built inside have parameters without memory; buffers are computed as ever."""
    register = nn.Module.register_parameter

    def register_on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:  # one that is tied to another is there already
            parameter = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = register_on_meta  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


@dataclass
class Checkpoint:
    """A checkpoint's tensors under the module's names, and what it takes to write them back.

    Attributes:
        state: tensors by name, mapped from the files; emptied once the module has them.
        keys: file and key of each, for those that the checkpoint has as they are.
        texts: the checkpoint's configuration files by path.
        loading: the tensor that is being placed, its file and its key.
        rest: tensors of other components in the same files, still mapped.
        cut: file, key and the key's rows of each tensor that is rows of one in the files, as first row and number.
        heights: how many rows those in the files have.
    """

    state: dict[str, Tensor] = field(default_factory=dict)
    keys: dict[str, tuple[str, str]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    loading: tuple[Tensor | None, str, str] = (None, "", "")
    rest: dict[tuple[str, str], Tensor] = field(default_factory=dict)
    cut: dict[str, tuple[str, str, list[tuple[int, int]]]] = field(default_factory=dict)
    heights: dict[tuple[str, str], int] = field(default_factory=dict)

    def tie(self, module: nn.Module) -> None:
        """Give all names of a shared parameter or buffer the same tensor."""
        first: dict[int, str] = {}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            owner = first.setdefault(id(parameter), name)
            if owner != name:
                self.state[owner] = nn.Parameter(self.state[owner], requires_grad=parameter.requires_grad)
                self.state[name] = self.state[owner]
        for name, parameter in module.named_parameters(remove_duplicate=False):
            self.state[name] = self.state[first[id(parameter)]]
        for name, buffer in module.named_buffers():
            first[id(buffer)] = name
        for name, buffer in module.named_buffers(remove_duplicate=False):
            if first[id(buffer)] in self.state:
                self.state[name] = self.state[first[id(buffer)]]


def read_checkpoint(
    module: nn.Module, model_path: str, sources: Any, source: DenoiserSource, config: EngineConfig
) -> Checkpoint:
    """Map the checkpoint's tensors under the module's names; nothing is read or copied yet.

    Args:
        module: built on the meta device.
        model_path: the checkpoint.
        sources: what ``source.build`` returned beside the module.
        source: where the pipeline gets its denoiser from.
        config: what it was built with.

    Raises:
        FileNotFoundError: there are no weights where the pipeline looks for them.
        ValueError: names or shapes do not fit; the message names the tensors.
    """
    from .slots import place

    folder = checkpoint_folder(model_path)
    checkpoint = Checkpoint(texts=released_texts(folder, every=source.file))
    read = config.read
    if source.handed:
        # A tensor that the pipeline changed on its way has no key.
        where = [read.get(id(tensor), (None, "", "")) for _, tensor in sources]
        weights = ((name, tensor, path, key) for (name, tensor), (_, path, key) in zip(sources, where, strict=True))
        place(module, weights, checkpoint, source)
    elif isinstance(sources, dict):
        checkpoint.state = sources
        if read:
            checkpoint.keys = {name: read[id(tensor)][1:] for name, tensor in sources.items() if id(tensor) in read}
        else:
            checkpoint.keys = _keys_of(sources, folder)
    else:
        place(module, _weights(folder, sources, source.prefix), checkpoint, source)
    used = set(checkpoint.keys.values())
    checkpoint.rest = {(path, key): tensor for tensor, path, key in read.values() if (path, key) not in used}
    expected = module.state_dict()
    problems = {
        "missing": sorted(name for name, _ in module.named_parameters() if name not in checkpoint.state),
        "unexpected": sorted(checkpoint.state.keys() - expected.keys()),
        "mis-shaped": sorted(
            n for n in checkpoint.state.keys() & expected.keys() if checkpoint.state[n].shape != expected[n].shape
        ),
    }
    said = [f"{len(names)} {kind}: {', '.join(names[:10])}" for kind, names in problems.items() if names]
    if said:
        raise ValueError(f"{folder} does not fit {type(module).__name__}; " + "; ".join(said))
    return checkpoint


def write_weights(folder: str, tensors: Iterable[tuple[str, Tensor]], checkpoint: Checkpoint) -> None:
    """Write tensors of the module under the checkpoint's names, in its files, beside those of other components.

    Args:
        folder: takes the files.
        tensors: of the module, by name.
        checkpoint: what the module was loaded from.

    Raises:
        ValueError: a tensor is not in the checkpoint as the module has it, or was read in a file outside of it.
    """
    files: dict[str, dict[str, Tensor]] = {}
    written = dict.fromkeys(checkpoint.heights, 0)
    for (path, key), tensor in checkpoint.rest.items():
        files.setdefault(path, {})[key] = tensor
    for name, tensor in tensors:
        if name in checkpoint.cut:
            path, key, runs = checkpoint.cut[name]
            height = checkpoint.heights[path, key]
            full = files.setdefault(path, {}).setdefault(key, tensor.new_empty(height, *tensor.shape[1:]))
            for (first, count), rows in zip(
                runs, torch.split(tensor.detach(), [count for _, count in runs]), strict=True
            ):
                full[first : first + count] = rows
                written[path, key] += count
            continue
        if name not in checkpoint.keys:
            raise ValueError(f"{name!r} is no tensor of the checkpoint, which has it in another form")
        path, key = checkpoint.keys[name]
        files.setdefault(path, {})[key] = tensor.detach().contiguous()
    lacking = [key for (path, key), count in written.items() if count != checkpoint.heights[path, key]]
    if lacking:
        raise ValueError(f"{lacking[0]!r} of the checkpoint has rows that are no parameters of the module")
    for path, state in files.items():
        place = os.path.join(folder, path)
        if os.path.relpath(os.path.realpath(place), os.path.realpath(folder)).startswith(os.pardir):
            raise ValueError(f"{path!r}, in which weights were read, leads out of the checkpoint; {folder} takes none")
        os.makedirs(os.path.dirname(place), exist_ok=True)
        save_file(state, place, metadata={"format": "pt"})


def pieces_of(checkpoint: Checkpoint) -> dict[tuple[str, str], list[Piece]]:
    """Which parameters, and which of their rows, each tensor of a checkpoint is made of, by its file and key."""
    pieces: dict[tuple[str, str], list[Piece]] = {}
    for name, place in checkpoint.keys.items():
        pieces.setdefault(place, []).append(Piece(name))
    for name, (path, key, runs) in checkpoint.cut.items():
        start = 0
        for first, count in runs:
            pieces.setdefault((path, key), []).append(Piece(name, 0, start, count, first))
            start += count
    return pieces


def _weights(folder: str, sources: Iterable[Any], prefix: str) -> Iterator[tuple[str, Tensor, str, str]]:
    """Weights of the denoiser under the names that its loader gets, with file and key."""
    others: dict[str, list[str]] = {}
    for subfolder, before, patterns in sources:
        if before and not before.startswith(prefix):
            continue  # another component
        for path in _weight_files(folder, subfolder, patterns):
            with safe_open(os.path.join(folder, path), framework="pt", device="cpu") as file:
                for key in file.keys():
                    if (before + key).startswith(prefix):
                        yield (before + key)[len(prefix) :], file.get_tensor(key), path, key
                    elif not before:
                        others.setdefault(key.partition(".")[0], []).append(key)
    if others:
        told = ", ".join(f"{len(keys)} such as {keys[0]}" for keys in others.values())
        logger.warning("tensors of other parts of the checkpoint are not used: %s", told)


def _weight_files(folder: str, subfolder: str | None, patterns: list[str] | None) -> list[str]:
    """Weight files of a component, relative to ``folder``: those that are asked for, of an index, or all there are.

    Raises:
        FileNotFoundError: there are none.
    """
    place = os.path.join(folder, subfolder) if subfolder else folder
    names = sorted(os.listdir(place)) if os.path.isdir(place) else []
    indexes = [name for name in names if name.endswith(".safetensors.index.json")]
    files = [name for name in names if name.endswith(".safetensors")]
    if patterns:
        files = [name for name in names if any(fnmatch(name, os.path.basename(pattern)) for pattern in patterns)]
    elif indexes:
        with open(os.path.join(place, indexes[0]), encoding="utf-8") as file:
            listed = {os.path.basename(name) for name in json.load(file)["weight_map"].values()}
        files = sorted(listed)
    if not files:
        raise FileNotFoundError(f"{place} has no *.safetensors")
    return [os.path.join(subfolder, name) if subfolder else name for name in files]


def _keys_of(state: dict[str, Tensor], folder: str) -> dict[str, tuple[str, str]]:
    """File and key of tensors that the pipeline's own code read: the names' endings say which, the values prove it."""
    keys: dict[str, tuple[str, str]] = {}
    for path in sorted(name for name in os.listdir(folder) if name.endswith(".safetensors")):
        with safe_open(os.path.join(folder, path), framework="pt", device="cpu") as file:
            for key in file.keys():
                parts = key.split(".")
                for name in (".".join(parts[start:]) for start in range(len(parts))):
                    if name not in state or name in keys:
                        continue
                    tensor = file.get_tensor(key)
                    if tensor.shape == state[name].shape and torch.equal(tensor.to(state[name].dtype), state[name]):
                        keys[name] = (path, key)
                        break
    return keys
