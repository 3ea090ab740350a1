"""What a pipeline's own code asks the engine's configuration for while it builds the denoiser."""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from safetensors import safe_open


class EngineConfig:
    """Stands for the engine's configuration.

    Args:
        model: folder of the checkpoint, or its one file.
        dtype: dtype of the weights.

    Attributes:
        read: tensors that the pipeline's code mapped by itself, by identity, with their file's name and key.
    """

    quantization_config = None
    revision = None

    def __init__(self, model: str, dtype: torch.dtype) -> None:
        self.model, self.dtype = model, dtype
        self.model_config: dict[str, Any] = {}
        self.tf_model_config = TransformerConfig(_transformer_config(model))
        self.read: dict[int, tuple[torch.Tensor, str, str]] = {}

    def load_file(self, path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
        """Map a file's tensors and remember where they come from."""
        root = checkpoint_folder(self.model)
        with safe_open(path, framework="pt", device="cpu") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}
        self.read |= {id(tensor): (tensor, os.path.relpath(path, root), key) for key, tensor in tensors.items()}
        return tensors


class TransformerConfig:
    """The denoiser's configuration, as the engine hands it on: a dictionary that has its keys as attributes, too."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params

    def to_dict(self) -> dict[str, Any]:
        return dict(self.params)

    def get(self, key: str, default: Any = None) -> Any:
        return self.params.get(key, default)

    def __getattr__(self, name: str) -> Any:
        if name == "params" or name not in self.params:
            raise AttributeError(name)
        return self.params[name]


def checkpoint_folder(model_path: str) -> str:
    """The folder of a checkpoint that is named by its folder or by its one file."""
    return os.path.dirname(model_path) if os.path.isfile(model_path) else model_path


def weights_file(path: str) -> str:
    """The file of weights that is the checkpoint: ``path`` itself, or the only one in that folder.

    Raises:
        FileNotFoundError: there is none, or there are several.
    """
    if os.path.isfile(path):
        return path
    names = [name for name in os.listdir(path) if name.endswith(".safetensors")] if os.path.isdir(path) else []
    if len(names) != 1:
        raise FileNotFoundError(f"{path} must be a file of weights, or have one *.safetensors; it has {len(names)}")
    return os.path.join(path, names[0])


def _transformer_config(folder: str) -> dict[str, Any]:
    """The file that the engine reads: the component's where there is an index of components, else the root's."""
    root, component = os.path.join(folder, "config.json"), os.path.join(folder, "transformer", "config.json")
    indexed = os.path.isfile(os.path.join(folder, "model_index.json")) or not os.path.isfile(root)
    path = component if indexed else root
    if not os.path.isfile(path):
        return {}
    with open(path, encoding="utf-8") as file:
        config: dict[str, Any] = json.load(file)
    if "quantization_config" in config:
        raise ValueError(f"{path} describes quantised weights, which cannot be trained")
    return config
