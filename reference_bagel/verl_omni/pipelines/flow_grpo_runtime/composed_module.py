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
"""The training module of a model that is computed anew, without the engine's cache: its sizes, its LoRA, itself."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
import torch.nn.functional as F
from peft import LoraConfig
from peft.tuners import lora
from safetensors.torch import save_file
from torch import Tensor, nn
from typing_extensions import Self

from .composed_layers import sincos_table
from .export import Piece
from .lora_files import LoraFiles
from .released import ReleasedWeights
from .saved_config import FILE, config_values, refuse_sharded, released_texts, write_config

MARK = "_training_config"


class SavedSizes:
    """Goes before a dataclass of sizes: it is saved as ``config.json``, and read back to the same values."""

    if TYPE_CHECKING:
        hidden_size: int
        num_attention_heads: int
        latent_patch_size: int
        latent_channel: int
        vae_downsample: int

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def patch_latent_dim(self) -> int:
        """Channels of one latent token."""
        return self.latent_patch_size**2 * self.latent_channel

    @property
    def pixels_per_token(self) -> int:
        """Side, in pixels, of the image square that one latent token stands for."""
        return self.latent_patch_size * self.vae_downsample

    def note_release(self, module: type, texts: Mapping[str, str]) -> None:
        """Keep what is saved beside the sizes.

        Args:
            module: class of the training module.
            texts: the released configuration files by path.
        """
        self.__dict__["_named"] = config_values(module, None, {}, "")
        # Not an index: save_pretrained of the module writes one file with all weights.
        self.__dict__["_texts"] = {path: text for path, text in texts.items() if not path.endswith("index.json")}

    def to_dict(self: Any) -> dict[str, Any]:
        """The values of ``config.json``: the released ones, and the sizes in a section of their own."""
        texts = getattr(self, "_texts", {})
        released = json.loads(texts.get(FILE, "{}"))
        return {**getattr(self, "_named", {}), **released, MARK: {"class": type(self).__name__, **asdict(self)}}

    def save_pretrained(self: Any, save_directory: str, **kwargs: Any) -> None:
        """Write ``config.json`` and the other released files; ``from_model_path`` reads them back to the same values.

        Args:
            save_directory: takes the files.
            kwargs: not used.
        """
        texts = {path: text for path, text in getattr(self, "_texts", {}).items() if path != FILE}
        write_config(save_directory, texts, self.to_dict())

    @classmethod
    def saved(cls, root: dict[str, Any]) -> Self | None:
        """What :meth:`save_pretrained` wrote; None where ``root`` is a released configuration."""
        sizes = root.get(MARK)
        if not isinstance(sizes, dict) or sizes.get("class") != cls.__name__:
            return None
        values = {field.name: sizes[field.name] for field in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def read_json(model_path: str, name: str) -> dict[str, Any]:
    """Read one JSON object beside the weights.

    Raises:
        FileNotFoundError: there is no such file.
    """
    path = os.path.join(model_path, name)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path} is missing; the training module reads its sizes from there")
    with open(path, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


# Sizes that configurations of language models call the same.
LANGUAGE_MODEL = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "rms_norm_eps",
    "rope_theta",
)


def required_sizes(section: dict[str, Any], file: str, names: Sequence[str] = LANGUAGE_MODEL) -> dict[str, Any]:
    """Sizes that a section has under these names; see :func:`required`."""
    return {name: required(section, name, file) for name in names}


def section_or_file(model_path: str, root: dict[str, Any], name: str, section: str = "") -> dict[str, Any]:
    """Sizes of a part of the model: the file that the rollout reads, else the section of ``config.json``.

    Raises:
        FileNotFoundError: there is neither.
    """
    if name and os.path.isfile(os.path.join(model_path, name)):
        return read_json(model_path, name)
    found = root.get(section) if section else None
    if isinstance(found, dict):
        return found
    lacking = [name] if name else []
    lacking += [f"section {section} of config.json"] if section else []
    raise FileNotFoundError(f"{' or '.join(lacking)} is missing in {model_path}")


def required(config: dict[str, Any], key: str, name: str) -> Any:
    """A size that has no default.

    Raises:
        ValueError: it is not there.
    """
    if key not in config:
        raise ValueError(f"{name} has no {key!r}; the training module cannot guess it")
    return config[key]


def lookup(config: Any, path: str, default: Any) -> Any:
    """Follow a dotted path; ``default`` is what the rollout pipeline assumes where the entry is missing."""
    for key in path.split("."):
        config = config.get(key) if isinstance(config, dict) else None
        if config is None:
            return default
    return config


def token_id(model_path: str, text: str, default: int | None) -> int:
    """Id of an added token: what the tokenizer's files say, which is what the rollout uses, else ``default``.

    Raises:
        ValueError: there is neither.
    """
    for name in ("tokenizer.json", "tokenizer_config.json", "added_tokens.json"):
        if not os.path.isfile(os.path.join(model_path, name)):
            continue
        content = read_json(model_path, name)
        for token in content.get("added_tokens") or ():
            if token.get("content") == text:
                return int(token["id"])
        for found, token in (content.get("added_tokens_decoder") or {}).items():
            if token.get("content") == text:
                return int(found)
        if name == "added_tokens.json" and text in content:
            return int(content[text])
    if default is None:
        raise ValueError(f"no tokenizer file in {model_path} gives the id of {text!r}")
    return int(default)


class LoraLinear(lora.Linear):
    """PEFT's LoRA layer with the base product accumulated into the update.

    PEFT forms the update, its scaling and the sum as three more tensors of the output's size, which is a tenth of a
    training step here. Anything but one plain, unwrapped adapter in the input's dtype is left to PEFT.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Map ``(…, in_features)`` to ``(…, out_features)``."""
        name = str(self.active_adapters[0]) if len(self.active_adapters) == 1 else ""
        plain = name in self.lora_A and not (args or kwargs or self.disable_adapters or self.merged)
        plain = plain and name not in getattr(self, "lora_variant", {}) and not torch.is_autocast_enabled(x.device.type)
        # A sharding wrapper around one of the matrices shows its weight, and its dtype, only during its own forward.
        if not plain or {type(self.lora_A[name]), type(self.lora_B[name])} != {nn.Linear}:
            return super().forward(x, *args, **kwargs)
        base, down, up = self.base_layer, self.lora_A[name], self.lora_B[name]
        if type(base) is not nn.Linear or {base.weight.dtype, down.weight.dtype} != {x.dtype} or up.bias is not None:
            return super().forward(x)
        rows = x.flatten(0, -2)
        out = F.linear(down(self.lora_dropout[name](rows)) * self.scaling[name], up.weight, base.bias)
        # The large product comes last: a layer that is recomputed ends before it, since backward has no use for it.
        return out.addmm_(rows, base.weight.t()).unflatten(0, x.shape[:-1])


class ComposedModule(LoraFiles):
    """Goes before ``NonDiffusersModelBase``: loads a released checkpoint, and saves under its names.

    ``forward`` of a package returns ``(velocity,)``, ``(B, N, patch_latent_dim)``, and takes

    - ``hidden_states``: ``(B, N, patch_latent_dim)`` noisy latents;
    - ``timestep``: ``(B,)`` noise levels in (0, 1], or ``(B, F)`` features of them;
    - ``text_token_ids``: ``(B, L)`` ids padded on the right, or None for no text;
    - ``text_attention_mask``: ``(B, L)``, true at real tokens; None where no sample is padded;
    - ``latent_pos_ids``: ``(B, N)`` indices into the table of positions, or ``latent_positions``: ``(B, N, 2)`` row and
      column of each latent;
    - ``reference``: the image that is to be changed, of a model that edits; None without one;
    - ``exact``: latents and noise levels in float32, of a model that predicts clean latents; needed where ``timestep``
      is features.

    Attributes:
        config_class: dataclass of the model's sizes.
        weights: names and files of the checkpoint.
        position_table: name of the module that holds the table of latent positions; empty where there is none.
        checkpointed_layers: layers that are recomputed whole in the backward pass, from the first on; None is all of
            them. The others keep their products and recompute what is cheap: the backward pass begins with them, and
            frees their memory first.
    """

    config_class: ClassVar[Any]
    weights: ClassVar[ReleasedWeights]
    position_table: ClassVar[str] = ""
    checkpointed_layers: int | None = None

    @classmethod
    def from_pretrained(cls, model_path: str, torch_dtype: torch.dtype = torch.bfloat16, **kwargs: Any) -> Any:
        """Load a checkpoint without allocating it twice.

        The module is built on the meta device and takes the memory-mapped tensors as its parameters, so the pages are
        shared between processes until something writes to them. Only a change of dtype copies.

        Args:
            model_path: the checkpoint's folder.
            torch_dtype: dtype of the parameters.
            kwargs: not used.

        Raises:
            FileNotFoundError, KeyError, ValueError: the checkpoint does not fit; the message names the tensors.
        """
        model, state = cls._unloaded(model_path)
        model.load_state_dict(state, strict=True, assign=True)
        return model.to(torch_dtype)

    @classmethod
    def over(cls, model_path: str, dtype: torch.dtype, device: torch.device) -> Any:
        """The module without weights, for those of another; what no checkpoint has is computed, in ``dtype``."""
        model, state = cls._unloaded(model_path)
        for name in cls.weights.computed:
            if name in state:
                holder, _, leaf = name.rpartition(".")
                value = nn.Parameter(state[name].to(device, dtype), requires_grad=False)
                model.get_submodule(holder)._parameters[leaf] = value
        return model.requires_grad_(False).eval()

    @classmethod
    def _unloaded(cls, model_path: str) -> tuple[Any, dict[str, Tensor]]:
        """The module on the meta device, and the checkpoint's tensors for it."""
        config = cls.config_class.from_model_path(model_path)
        config.note_release(cls, released_texts(cls.weights.place(model_path), every=False))
        state = cls.weights.open(model_path)
        if "embed_tokens.weight" in state:
            config.vocab_size = state["embed_tokens.weight"].shape[0]
        unexpected = [name for name in cls.weights.computed if name in state]
        if unexpected:
            raise ValueError(f"{model_path} has tensors for {unexpected}, which {cls.__name__} computes")
        cls._place_positions(config, state)
        with torch.device("meta"):
            model = cast(Any, cls)(config)
        cls.weights.check(model.state_dict(), state, model_path)
        return model, state

    @classmethod
    def released_pieces(cls, model_path: str) -> dict[tuple[str, str], list[Piece]]:
        """Which parameters, and which of their rows, each tensor of a release is made of, by its file and key."""
        return cls.weights.pieces(model_path)

    @classmethod
    def unplaced_parameters(cls, model_path: str, names: Collection[str]) -> set[str]:
        """Those of a module's parameters that no tensor of a release takes; the rules lead each to its place."""
        return set()

    @classmethod
    def _place_positions(cls, config: Any, state: dict[str, Tensor]) -> None:
        """Compute the table of positions where no checkpoint has it; else take its size from the table itself."""
        name = f"{cls.position_table}.pos_embed"
        if name in cls.weights.computed:
            state[name] = sincos_table(config.hidden_size, config.max_latent_size)
        elif name in state:
            # A released configuration may be stale here; the table itself decides, as it does in the rollout.
            config.max_latent_size = math.isqrt(state[name].shape[0])

    def with_markers(self, text_token_ids: Tensor | None, latents: Tensor, *markers: int) -> Tensor:
        """The ids of the text, then a column of each marker: ``(B, L + markers)``."""
        batch, device = latents.shape[0], latents.device
        ids = [torch.full((batch, 1), marker, device=device) for marker in markers]
        if text_token_ids is not None:
            ids.insert(0, text_token_ids)
        return torch.cat(ids, dim=1) if ids else torch.zeros((batch, 0), dtype=torch.long, device=device)

    def layers_to_recompute(self: Any) -> Iterator[tuple[nn.Module, bool]]:
        """Each layer, and whether the backward pass recomputes it whole."""
        count = len(self.layers) if self.checkpointed_layers is None else self.checkpointed_layers
        for number, layer in enumerate(self.layers):
            yield layer, number < count

    def add_adapter(self: Any, adapter_config: Any, adapter_name: str = "default") -> None:
        """Inject a PEFT adapter; LoRA goes through :class:`LoraLinear`."""
        # PEFT's way to bring one's own layer for a module type; private by name, kept out of the saved config.
        if isinstance(adapter_config, LoraConfig):
            adapter_config._register_custom_module({nn.Linear: LoraLinear})
        super().add_adapter(adapter_config, adapter_name)  # type: ignore[misc]

    def save_pretrained(self: Any, save_directory: str, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write the configuration, and the weights under the checkpoint's own names.

        Adapters are not part of it: the base weights are saved, as they are without any adapter, and a warning says so.

        Raises:
            ValueError: something else than safetensors is asked for, or the module is sharded.
        """
        if not safe_serialization:
            raise ValueError(f"{type(self).__name__} saves safetensors only")
        refuse_sharded(self)
        self._warn_of_adapters()
        self._save_config(save_directory)
        base = (
            (name.replace(".base_layer.", "."), tensor)
            for name, tensor in self.state_dict().items()
            if ".lora_" not in name
        )
        state = {name: tensor.contiguous() for name, tensor in self.weights.tensors(base)}
        save_file(state, os.path.join(save_directory, self.weights.saved), metadata={"format": "pt"})
