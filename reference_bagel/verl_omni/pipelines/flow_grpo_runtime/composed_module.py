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
"""The training module of a model that is computed anew, without the engine's cache."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any, ClassVar, cast

import torch
from peft import LoraConfig
from safetensors.torch import save_file
from torch import Tensor, nn

from .composed_layers import sincos_table
from .export import Piece
from .lora_files import LoraFiles
from .lora_linear import LoraLinear
from .released import ReleasedWeights
from .saved_config import refuse_sharded, released_texts


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
    def unplaced_parameters(cls, model_path: str) -> set[str]:
        """Names of parameters that a release has in another form; the rules lead each to its place."""
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
